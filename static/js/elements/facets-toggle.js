/**
 * <facets-toggle hidden><button aria-expanded>…</button></facets-toggle>: shows or hides the filters of the list;
 * shortcut F. Next to the list the choice is remembered; on narrow pages the filters open above the list.
 */
import { ToggleButton } from "../lib/toggle-button.js";
import { setPreference, getPreference } from "../lib/preferences.js";

const NARROW = matchMedia("(max-width: 64rem)");

class FacetsToggle extends ToggleButton {
  shortcut = "f";

  connectedCallback() {
    super.connectedCallback();
    this.#filters?.addEventListener("toggle", this.#update);
    this.#update();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#filters?.removeEventListener("toggle", this.#update);
  }

  get #filters() {
    return /** @type {HTMLDetailsElement | null} */ (document.querySelector(".facets-disclosure"));
  }

  #update = () => {
    if (!NARROW.matches) return;
    const isOpen = Boolean(this.#filters?.open);
    this.querySelector("button")?.setAttribute("aria-expanded", String(isOpen));
  };

  toggle() {
    return NARROW.matches ? this.#toggleAboveList() : this.#toggleNextToList();
  }

  #toggleAboveList() {
    const filters = this.#filters;
    if (!filters) return true;
    filters.open = !filters.open;
    if (filters.open) filters.querySelector("summary")?.focus();
    return !filters.open;
  }

  #toggleNextToList() {
    const isCollapsed = !getPreference("facets");
    setPreference("facets", isCollapsed ? "collapsed" : "");
    return isCollapsed;
  }
}
customElements.define("facets-toggle", FacetsToggle);
