/** <fold-facets hidden><button aria-expanded>…</button></fold-facets>: what narrows the list, beside it or away; F does the same. */
import { FoldButton } from "../lib/fold-button.js";
import { choose, chosen } from "../lib/preferences.js";

class FoldFacets extends FoldButton {
  key = "f";

  fold() {
    const folds = !chosen("facets");
    choose("facets", folds ? "folded" : "");
    return folds;
  }
}
customElements.define("fold-facets", FoldFacets);
