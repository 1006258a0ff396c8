/**
 * <row-selection>…<input type="checkbox">…<button data-requires-selection></row-selection>: X selects the focused row, Shift+X the rows
 * up to it. Elements with `data-requires-selection` show when a row is selected, those with `data-idle` when none is;
 * `data-count` has the number. `data-select-all` is the checkbox of all rows, `data-clear-selection` a button. With more
 * rows than the attribute `maximum`, buttons with `data-requires-selection` are disabled and `data-selection-limit` shows.
 */
import { isShortcut } from "../lib/keyboard.js";

class RowSelection extends HTMLElement {
  #lastSelected = -1;

  connectedCallback() {
    this.addEventListener("change", this.#handleChange);
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleKeydown);
    this.querySelector("[data-clear-selection]")?.removeAttribute("hidden");
    this.#update();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  get #boxes() {
    return /** @type {HTMLInputElement[]} */ ([
      ...this.querySelectorAll("td input[type=checkbox]"),
    ]);
  }

  #handleChange = (/** @type {Event} */ event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-select-all]"))
      for (const other of this.#boxes) other.checked = box.checked;
    this.#update();
  };

  #handleClick = (/** @type {MouseEvent} */ event) => {
    if (!(/** @type {Element} */ (event.target).closest("[data-clear-selection]"))) return;
    for (const box of this.#boxes) box.checked = false;
    this.#update();
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.key.toLowerCase() !== "x") return;
    const row =
      document.activeElement?.closest("tr[data-row]") ??
      this.querySelector('tr[aria-selected="true"]');
    const box = row?.querySelector("input[type=checkbox]");
    if (!(box instanceof HTMLInputElement) || !this.contains(box)) return;
    const boxes = this.#boxes;
    const index = boxes.indexOf(box);
    box.checked = !box.checked;
    if (event.shiftKey && this.#lastSelected >= 0) {
      const [from, to] = [index, this.#lastSelected].sort((a, b) => a - b);
      for (const between of boxes.slice(from, (to ?? 0) + 1)) between.checked = box.checked;
    }
    this.#lastSelected = index;
    this.#update();
  };

  #update() {
    const boxes = this.#boxes;
    const count = boxes.filter((box) => box.checked).length;
    for (const box of boxes) box.closest("tr")?.classList.toggle("is-selected", box.checked);
    const isTooMany = count > Number(this.getAttribute("maximum") ?? Infinity);
    for (const element of this.querySelectorAll("[data-requires-selection]")) {
      element.toggleAttribute("hidden", !count);
      if (element instanceof HTMLButtonElement) element.disabled = isTooMany;
    }
    this.querySelector("[data-selection-limit]")?.toggleAttribute("hidden", !isTooMany);
    for (const element of this.querySelectorAll("[data-idle]"))
      element.toggleAttribute("hidden", count > 0);
    const counter = this.querySelector("[data-count]");
    if (counter) counter.textContent = String(count);
    const all = /** @type {HTMLInputElement | null} */ (this.querySelector("[data-select-all]"));
    if (!all) return;
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
}
customElements.define("row-selection", RowSelection);
