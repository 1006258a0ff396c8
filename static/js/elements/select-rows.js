/** <select-rows>…<input type="checkbox">…<button data-needs-some></select-rows>: X selects; the button wakes with a choice. */
import { isPlain } from "../lib/keyboard.js";

class SelectRows extends HTMLElement {
  connectedCallback() {
    this.addEventListener("change", this.#tell);
    document.addEventListener("keydown", this.#key);
    this.#tell();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  #tell = () => {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (this.querySelectorAll("input[type=checkbox]"));
    for (const box of boxes) box.closest("tr")?.classList.toggle("is-chosen", box.checked);
    const button = /** @type {HTMLButtonElement | null} */ (this.querySelector("[data-needs-some]"));
    if (button) button.hidden = ![...boxes].some((box) => box.checked);
  };

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (!isPlain(event) || event.key !== "x") return;
    const box = document.activeElement?.closest("tr[data-row]")?.querySelector("input[type=checkbox]");
    if (!(box instanceof HTMLInputElement)) return;
    box.checked = !box.checked;
    this.#tell();
  };
}
customElements.define("select-rows", SelectRows);
