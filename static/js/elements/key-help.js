/** <key-help><button>…</button></key-help>: shows the page of keys on `?`; carries the keys that work everywhere. */
import { tinykeys } from "../../vendor/tinykeys.js";
import { isPlain } from "../lib/keyboard.js";

class KeyHelp extends HTMLElement {
  /** @type {(() => void) | undefined} */
  #forget;

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#show);
    document.addEventListener("keydown", this.#key);
    this.#forget = tinykeys(window, {
      "g t": (event) => isPlain(event) && this.#go("Tracing"),
      "g b": (event) => isPlain(event) && this.#go("Dashboards"),
      "g s": (event) => isPlain(event) && this.#go("Settings"),
      "g d": (event) => isPlain(event) && this.#go("Deployments"),
      "/": (event) => {
        const field = /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"));
        if (!field || !isPlain(event)) return;
        event.preventDefault();
        field.focus();
        field.select();
      },
    });
  }

  disconnectedCallback() {
    this.#forget?.();
    document.removeEventListener("keydown", this.#key);
  }

  // By the character, not the key: layouts put it in different places.
  #key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "?" && isPlain(event)) this.#show();
  };

  #show = () => {
    /** @type {HTMLDialogElement | null} */ (document.querySelector("[data-key-help]"))?.showModal();
  };

  /** @param {string} section */
  #go(section) {
    /** @type {HTMLElement | null} */ (document.querySelector(`.nav-sections [title="${section}"]`))?.click();
  }
}
customElements.define("key-help", KeyHelp);
