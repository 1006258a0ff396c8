/**
 * <list-walk hidden><a data-step="-1">…</a><span data-place></span><a data-step="1">…</a></list-walk>: the neighbours of this
 * page in the list that it was opened from (lib/lists.js), also by Shift+K and Shift+J.
 */
import { isPlain } from "../lib/keyboard.js";
import { kept } from "../lib/lists.js";

class ListWalk extends HTMLElement {
  connectedCallback() {
    const rows = kept();
    const at = rows.indexOf(location.pathname);
    if (at < 0) return;
    for (const link of this.#links) {
      const to = rows[at + Number(link.dataset.step)];
      if (to) link.href = to;
      else link.setAttribute("aria-disabled", "true");
    }
    const place = this.querySelector("[data-place]");
    if (place) place.textContent = `${at + 1} of ${rows.length}`;
    this.hidden = false;
    document.addEventListener("keydown", this.#key);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  get #links() {
    return /** @type {HTMLAnchorElement[]} */ ([...this.querySelectorAll("a")]);
  }

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (!event.shiftKey || !isPlain(event)) return;
    const step = { J: "1", K: "-1" }[event.key];
    const link = this.#links.find((one) => one.dataset.step === step);
    if (step && link?.href) link.click();
  };
}
customElements.define("list-walk", ListWalk);
