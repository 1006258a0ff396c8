import { isPlain } from "./keyboard.js";

/** An element around a button that folds a part of the page away; a key does the same. */
export class FoldButton extends HTMLElement {
  /** The key. */
  key = "";

  /**
   * Folds or unfolds, and returns whether the part is folded now.
   * @returns {boolean}
   */
  fold() {
    throw new Error("each element folds something of its own");
  }

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#toggle);
    document.addEventListener("keydown", this.#pressed);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#pressed);
  }

  #pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === this.key && isPlain(event)) this.#toggle();
  };

  #toggle = () => {
    this.querySelector("button")?.setAttribute("aria-expanded", String(!this.fold()));
  };
}
