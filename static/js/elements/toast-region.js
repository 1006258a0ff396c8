/**
 * <toast-region class="toasts" role="status">: shows the messages of the server and of `lib/toast.js`. Messages
 * disappear after a few seconds, errors on click.
 */
import { createIcon } from "../lib/icons.js";

const DISPLAY_MS = 5000;

class ToastRegion extends HTMLElement {
  connectedCallback() {
    for (const toast of this.children) this.#scheduleRemoval(toast);
    this.addEventListener("show-toast", (event) =>
      this.#show(/** @type {CustomEvent} */ (event).detail),
    );
    this.addEventListener("click", (event) =>
      /** @type {Element} */ (event.target).closest(".toast")?.remove(),
    );
  }

  /** @param {{ text: string, tone: string }} message */
  #show({ text, tone }) {
    const toast = document.createElement("div");
    toast.className = `toast tone-${tone}`;
    toast.append(createIcon(tone === "error" ? "circle-alert" : "circle-check"), text);
    this.append(toast);
    this.#scheduleRemoval(toast);
  }

  /** @param {Element} toast */
  #scheduleRemoval(toast) {
    if (!toast.classList.contains("tone-error")) setTimeout(() => toast.remove(), DISPLAY_MS);
  }
}
customElements.define("toast-region", ToastRegion);
