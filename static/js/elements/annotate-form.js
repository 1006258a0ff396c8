/**
 * <annotate-form><form class="annotate">…: the digits press the scores of the first key, C opens the rest and goes to
 * the comment; Ctrl+Enter in a text sends it.
 */
import { isPlain } from "../lib/keyboard.js";

class AnnotateForm extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#key);
    this.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.querySelector("form")?.requestSubmit();
    });
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (!isPlain(event) || this.closest("[hidden]")) return;
    if (event.key === "c") {
      event.preventDefault();
      const more = this.querySelector("details");
      if (more) more.open = true;
      /** @type {HTMLElement | null} */ (this.querySelector("textarea"))?.focus();
    } else if (/^[1-9]$/.test(event.key)) {
      const buttons = this.querySelectorAll(".annotate-key:first-child button");
      const button = /** @type {HTMLElement | undefined} */ (buttons[Number(event.key) - 1]);
      if (!button) return;
      event.preventDefault();
      button.click();
    }
  };
}
customElements.define("annotate-form", AnnotateForm);
