/**
 * <toast-region class="toasts" role="status">: messages of the server, and those of `lib/toast.js`. They leave
 * after a while, errors when they are clicked.
 */
import { icon } from "../lib/icons.js";

const STAYS = 5000;

class ToastRegion extends HTMLElement {
  connectedCallback() {
    for (const toast of this.children) this.#leaveLater(toast);
    this.addEventListener("say", (event) => this.#say(/** @type {CustomEvent} */ (event).detail));
    this.addEventListener("click", (event) => /** @type {Element} */ (event.target).closest(".toast")?.remove());
  }

  /** @param {{ text: string, tone: string }} what */
  #say({ text, tone }) {
    const toast = document.createElement("div");
    toast.className = `toast tone-${tone}`;
    toast.append(icon(tone === "error" ? "circle-alert" : "circle-check"), text);
    this.append(toast);
    this.#leaveLater(toast);
  }

  /** @param {Element} toast */
  #leaveLater(toast) {
    if (!toast.classList.contains("tone-error")) setTimeout(() => toast.remove(), STAYS);
  }
}
customElements.define("toast-region", ToastRegion);
