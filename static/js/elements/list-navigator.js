/**
 * <list-navigator hidden><a data-step="-1">…</a><span data-position></span><a data-step="1">…</a></list-navigator>: links to the neighbours
 * of this page in the list it was opened from (lib/list-history.js); shortcuts Shift+K and Shift+J.
 */
import { isShortcut } from "../lib/keyboard.js";
import { loadList } from "../lib/list-history.js";

class ListNavigator extends HTMLElement {
  connectedCallback() {
    const rows = loadList();
    const index = rows.indexOf(location.pathname);
    if (index < 0) return;
    for (const link of this.#links) {
      const href = rows[index + Number(link.dataset.step)];
      if (href) link.href = href;
      else {
        // Without an address it is no link, and could have no label.
        link.setAttribute("role", "link");
        link.setAttribute("aria-disabled", "true");
      }
    }
    const position = this.querySelector("[data-position]");
    if (position) position.textContent = `${index + 1} of ${rows.length}`;
    this.hidden = false;
    document.addEventListener("keydown", this.#handleKeydown);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  get #links() {
    return /** @type {HTMLAnchorElement[]} */ ([...this.querySelectorAll("a")]);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!event.shiftKey || !isShortcut(event)) return;
    const step = { J: "1", K: "-1" }[event.key];
    const link = this.#links.find((candidate) => candidate.dataset.step === step);
    if (step && link?.href) link.click();
  };
}
customElements.define("list-navigator", ListNavigator);
