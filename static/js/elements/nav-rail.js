/** <nav-rail><button>…</button></nav-rail>: folds the navigation to icons; `[` does too. */
import { redraw } from "../lib/icons.js";
import { isPlain } from "../lib/keyboard.js";
import { choose, chosen } from "../lib/preferences.js";

class NavRail extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#toggle);
    document.addEventListener("keydown", this.#key);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "[" && isPlain(event)) this.#toggle();
  };

  #toggle = () => {
    const folded = chosen("nav") !== "rail";
    choose("nav", folded ? "rail" : "");
    this.querySelector("button")?.setAttribute("aria-expanded", String(!folded));
    redraw(this.querySelector(".icon"), folded ? "panel-left-open" : "panel-left-close");
  };
}
customElements.define("nav-rail", NavRail);
