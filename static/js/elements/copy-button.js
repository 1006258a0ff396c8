/**
 * <copy-button value="…"><button>…</button></copy-button>: copies its value and says so with a tick; with `for` the
 * text of the element of that id.
 */
import { toast } from "../lib/toast.js";

class CopyButton extends HTMLElement {
  connectedCallback() {
    this.addEventListener("click", this.#copy);
  }

  disconnectedCallback() {
    this.removeEventListener("click", this.#copy);
  }

  #copy = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const source = document.getElementById(this.getAttribute("for") ?? "");
      await navigator.clipboard.writeText(source?.textContent ?? this.getAttribute("value") ?? "");
    } catch {
      toast("The browser blocked access to the clipboard.", "error");
      return;
    }
    this.toggleAttribute("data-copied", true);
    toast("Copied");
    setTimeout(() => this.removeAttribute("data-copied"), 1600);
  };
}
customElements.define("copy-button", CopyButton);
