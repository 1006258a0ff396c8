/** <shortcut-help><button>…</button></shortcut-help>: opens the list of shortcuts on `?` and binds the global shortcuts. */
import { bindSequences, isShortcut } from "../lib/keyboard.js";

class ShortcutHelp extends HTMLElement {
  /** @type {(() => void) | undefined} */
  #unbind;

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#open);
    document.addEventListener("keydown", this.#handleKeydown);
    this.#unbind = bindSequences({
      t: () => this.#openSection("Tracing"),
      e: () => this.#openSection("Datasets"),
      p: () => this.#openSection("Prompts"),
      y: () => this.#openSection("Playground"),
      d: () => this.#openSection("Deployments"),
      b: () => this.#openSection("Dashboards"),
      a: () => this.#openSection("Alerts"),
      s: () => this.#openSection("Settings"),
    });
  }

  disconnectedCallback() {
    this.#unbind?.();
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  // Compare the character, because its key differs between keyboard layouts.
  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event)) return;
    if (event.key === "?") this.#open();
    if (event.key === "/") this.#focusSearch(event);
  };

  /** @param {KeyboardEvent} event */
  #focusSearch(event) {
    const field = /** @type {HTMLInputElement | null} */ (
      document.querySelector("main input[type=search]")
    );
    if (!field || event.defaultPrevented) return;
    event.preventDefault();
    field.focus();
    // A query is edited, so that it is not lost with the first key.
    if (field.closest("query-bar")) field.setSelectionRange(field.value.length, field.value.length);
    else field.select();
  }

  #open = () => {
    /** @type {HTMLDialogElement | null} */ (
      document.querySelector("[data-shortcut-help]")
    )?.showModal();
  };

  /** @param {string} section */
  #openSection(section) {
    /** @type {HTMLElement | null} */ (
      document.querySelector(`.nav-sections [title="${section}"]`)
    )?.click();
  }
}
customElements.define("shortcut-help", ShortcutHelp);
