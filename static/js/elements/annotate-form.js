/**
 * <annotate-form><form class="annotate-key">…<form><details>…: digit keys submit scores of the first feedback key,
 * C opens the details and focuses the comment, Ctrl+Enter submits the form of the focused field.
 */
import { isShortcut } from "../lib/keyboard.js";

class AnnotateForm extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#handleKeydown);
    this.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey))
        /** @type {Element} */ (event.target).closest("form")?.requestSubmit();
    });
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || this.closest("[hidden]")) return;
    if (event.key === "c") {
      event.preventDefault();
      const details = this.querySelector("details");
      if (details) details.open = true;
      /** @type {HTMLElement | null} */ (this.querySelector("textarea"))?.focus();
    } else if (/^[1-9]$/.test(event.key)) {
      const buttons = this.querySelectorAll(".annotate-key:first-child .segments button");
      const button = /** @type {HTMLElement | undefined} */ (buttons[Number(event.key) - 1]);
      if (!button) return;
      event.preventDefault();
      button.click();
    }
  };
}
customElements.define("annotate-form", AnnotateForm);
