/** <shortcut-help><button>…</button></shortcut-help>: opens the list of shortcuts on `?` and binds the global shortcuts. */
import { tinykeys } from "../../vendor/tinykeys.js";
import { isShortcut } from "../lib/keyboard.js";

const AFTER_PREFIX = { afterPrefix: true };

class ShortcutHelp extends HTMLElement {
  /** @type {(() => void) | undefined} */
  #unbind;

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#open);
    document.addEventListener("keydown", this.#handleKeydown);
    this.#unbind = tinykeys(window, {
      "g t": (event) => isShortcut(event, AFTER_PREFIX) && this.#openSection("Tracing"),
      "g y": (event) => isShortcut(event, AFTER_PREFIX) && this.#openSection("Playground"),
      "g b": (event) => isShortcut(event, AFTER_PREFIX) && this.#openSection("Dashboards"),
      "g s": (event) => isShortcut(event, AFTER_PREFIX) && this.#openSection("Settings"),
      "g d": (event) => isShortcut(event, AFTER_PREFIX) && this.#openSection("Deployments"),
      "/": (event) => {
        const field = /** @type {HTMLInputElement | null} */ (
          document.querySelector("main input[type=search]")
        );
        if (!field || !isShortcut(event)) return;
        event.preventDefault();
        field.focus();
        // A query is edited, so that it is not lost with the first key.
        if (field.closest("query-bar"))
          field.setSelectionRange(field.value.length, field.value.length);
        else field.select();
      },
    });
  }

  disconnectedCallback() {
    this.#unbind?.();
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  // Compare the character, because its key differs between keyboard layouts.
  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "?" && isShortcut(event)) this.#open();
  };

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
