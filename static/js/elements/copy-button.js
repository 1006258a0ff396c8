/**
 * <copy-button value="…"><button>…</button></copy-button>: copies the value, or the text of the element named by `for`.
 */
import { showToast } from "../lib/toast.js";

class CopyButton extends HTMLElement {
  connectedCallback() {
    this.addEventListener("click", this.#handleClick);
  }

  disconnectedCallback() {
    this.removeEventListener("click", this.#handleClick);
  }

  #handleClick = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const source = document.getElementById(this.getAttribute("for") ?? "");
      await navigator.clipboard.writeText(source?.textContent ?? this.getAttribute("value") ?? "");
    } catch {
      showToast("The browser blocked access to the clipboard.", "error");
      return;
    }
    this.toggleAttribute("data-copied", true);
    showToast("Copied");
    setTimeout(() => this.removeAttribute("data-copied"), 1600);
  };
}
customElements.define("copy-button", CopyButton);
