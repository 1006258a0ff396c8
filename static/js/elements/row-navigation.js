/**
 * <row-navigation><table>… <tr data-row><a class="row-link">…</row-navigation>: J and K move between rows, Home and End jump,
 * Enter opens the focused row link, D changes the row density. With `opens-preview` a click opens the row in <row-preview>.
 */
import { isShortcut } from "../lib/keyboard.js";
import { setPreference, getPreference } from "../lib/preferences.js";
import { openRow } from "../lib/row-open.js";

class RowNavigation extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#handleKeydown);
    if (this.hasAttribute("opens-preview")) this.addEventListener("click", openRow);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.shiftKey) return;
    if (event.key === "d") {
      setPreference("density", getPreference("density") ? "" : "compact");
      return;
    }
    const links = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".row-link")]);
    const index = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { j: index + 1, k: index < 0 ? 0 : index - 1, Home: 0, End: links.length - 1 }[
      event.key
    ];
    if (next === undefined || (event.key.length > 1 && index < 0)) return;
    const link = links[Math.max(0, Math.min(next, links.length - 1))];
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    link.closest("tr")?.scrollIntoView({ block: "nearest" });
  };
}
customElements.define("row-navigation", RowNavigation);
