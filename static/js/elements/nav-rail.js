/** <nav-rail><button>…</button></nav-rail>: folds the navigation to icons; `[` does too. */
import { FoldButton } from "../lib/fold-button.js";
import { redraw } from "../lib/icons.js";
import { choose, chosen } from "../lib/preferences.js";

class NavRail extends FoldButton {
  key = "[";

  fold() {
    const folds = chosen("nav") !== "rail";
    choose("nav", folds ? "rail" : "");
    redraw(this.querySelector(".icon"), folds ? "panel-left-open" : "panel-left-close");
    return folds;
  }
}
customElements.define("nav-rail", NavRail);
