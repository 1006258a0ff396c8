/** <row-selection>…<input type="checkbox">…<button data-requires-selection></row-selection>: X selects the focused row; the button shows when a row is selected. */
import { isShortcut } from "../lib/keyboard.js";

class RowSelection extends HTMLElement {
  connectedCallback() {
    this.addEventListener("change", this.#update);
    document.addEventListener("keydown", this.#handleKeydown);
    this.#update();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #update = () => {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (
      this.querySelectorAll("input[type=checkbox]")
    );
    for (const box of boxes) box.closest("tr")?.classList.toggle("is-selected", box.checked);
    const button = /** @type {HTMLButtonElement | null} */ (
      this.querySelector("[data-requires-selection]")
    );
    if (button) button.hidden = ![...boxes].some((box) => box.checked);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.key !== "x") return;
    const box = document.activeElement
      ?.closest("tr[data-row]")
      ?.querySelector("input[type=checkbox]");
    if (!(box instanceof HTMLInputElement)) return;
    box.checked = !box.checked;
    this.#update();
  };
}
customElements.define("row-selection", RowSelection);
