import { isShortcut } from "./keyboard.js";

/** Base class of elements whose button shows or hides a part of the page, with a keyboard shortcut. */
export class ToggleButton extends HTMLElement {
  /** The key of the shortcut. */
  shortcut = "";

  /**
   * Shows or hides the part and returns whether it is hidden now.
   * @returns {boolean}
   */
  toggle() {
    throw new Error("subclasses implement toggle()");
  }

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleKeydown);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === this.shortcut && isShortcut(event)) this.#handleClick();
  };

  #handleClick = () => {
    this.querySelector("button")?.setAttribute("aria-expanded", String(!this.toggle()));
  };
}
