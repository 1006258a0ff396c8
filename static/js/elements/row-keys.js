/**
 * <row-keys><table>… <tr data-row><a class="row-link">…</row-keys>: J and K walk the rows, Home and End jump,
 * Enter opens (the row's link has the focus), D changes the density of all tables.
 */
import { isPlain } from "../lib/keyboard.js";
import { choose, chosen } from "../lib/preferences.js";

class RowKeys extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#key);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
  }

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (!isPlain(event) || event.shiftKey) return;
    if (event.key === "d") {
      choose("density", chosen("density") ? "" : "compact");
      return;
    }
    const links = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".row-link")]);
    const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { j: at + 1, k: at < 0 ? 0 : at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (to === undefined || (event.key.length > 1 && at < 0)) return;
    const link = links[Math.max(0, Math.min(to, links.length - 1))];
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    link.closest("tr")?.scrollIntoView({ block: "nearest" });
  };
}
customElements.define("row-keys", RowKeys);
