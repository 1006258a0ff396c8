/** <fold-facets hidden><button aria-expanded>…</button></fold-facets>: what narrows the list, beside it or away; F does the same. */
import { isPlain } from "../lib/keyboard.js";
import { choose, chosen } from "../lib/preferences.js";

class FoldFacets extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#toggle);
    document.addEventListener("keydown", this.#key);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "f" && isPlain(event)) this.#toggle();
  };

  #toggle = () => {
    const folds = !chosen("facets");
    choose("facets", folds ? "folded" : "");
    this.querySelector("button")?.setAttribute("aria-expanded", String(!folds));
  };
}
customElements.define("fold-facets", FoldFacets);
