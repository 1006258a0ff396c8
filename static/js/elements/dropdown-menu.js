import { isTyping } from "../lib/keyboard.js";

/** <dropdown-menu><details class="menu">…</details></dropdown-menu>: closes on Escape and on an outside click; arrow keys move. */
class DropdownMenu extends HTMLElement {
  connectedCallback() {
    document.addEventListener("click", this.#handleDocumentClick);
    this.addEventListener("keydown", this.#handleKeydown);
  }

  disconnectedCallback() {
    document.removeEventListener("click", this.#handleDocumentClick);
  }

  get #details() {
    return this.querySelector("details");
  }

  #handleDocumentClick = (/** @type {Event} */ event) => {
    if (this.#details?.open && !this.contains(/** @type {Node} */ (event.target)))
      this.#details.open = false;
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const details = this.#details;
    if (!details) return;
    if (event.key === "Escape" && details.open) {
      event.stopPropagation();
      details.open = false;
      details.querySelector("summary")?.focus();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping(event)) {
      event.preventDefault();
      details.open = true;
      const items = /** @type {HTMLElement[]} */ ([...details.querySelectorAll(".menu-item")]);
      const index = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      const step = event.key === "ArrowDown" ? 1 : -1;
      items[(index + step + items.length) % items.length]?.focus();
    }
  };
}
customElements.define("dropdown-menu", DropdownMenu);
