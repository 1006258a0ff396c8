/**
 * <peek-panel hidden><aside>… [data-peek-body] …</aside></peek-panel>: the run of the chosen row beside the list, without
 * leaving it. J and K walk on, Enter opens the page, Escape closes. The address says which run is open.
 */
import { isPlain } from "../lib/keyboard.js";
import { toast } from "../lib/toast.js";

const NARROW = matchMedia("(max-width: 64rem)");

class PeekPanel extends HTMLElement {
  /** @type {AbortController | undefined} */
  #asking;
  /** @type {HTMLAnchorElement | null} */
  #link = null;

  connectedCallback() {
    document.addEventListener("row-chosen", this.#chosen);
    document.addEventListener("focusin", this.#focus);
    document.addEventListener("keydown", this.#key, true);
    this.querySelector("[data-peek-close]")?.addEventListener("click", () => this.#close());
    if (NARROW.matches) return;
    const id = new URL(location.href).searchParams.get("peek");
    const link = id && /** @type {HTMLAnchorElement | null} */ (document.querySelector(`#run-${CSS.escape(id)} .row-link`));
    if (link) this.#open(link);
  }

  disconnectedCallback() {
    document.removeEventListener("row-chosen", this.#chosen);
    document.removeEventListener("focusin", this.#focus);
    document.removeEventListener("keydown", this.#key, true);
  }

  #chosen = (/** @type {Event} */ event) => {
    if (NARROW.matches) return;
    event.preventDefault();
    const { link } = /** @type {CustomEvent} */ (event).detail;
    if (link === this.#link) this.#close();
    else {
      link.focus({ preventScroll: true });
      this.#open(link);
    }
  };

  /** While it is open it follows the keyboard. */
  #focus = (/** @type {FocusEvent} */ event) => {
    const link = event.target;
    if (this.hidden || !(link instanceof HTMLAnchorElement) || !link.matches(".row-link") || link === this.#link) return;
    this.#open(link);
  };

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || this.hidden || !isPlain(event)) return;
    this.#link?.focus({ preventScroll: true });
    this.#close();
  };

  /** @param {HTMLAnchorElement} link */
  async #open(link) {
    this.#mark(link);
    this.hidden = false;
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const place = /** @type {HTMLElement} */ (this.querySelector("[data-peek-body]"));
    const open = this.querySelector("[data-peek-open]");
    if (open instanceof HTMLAnchorElement) open.href = link.href;
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`${link.href}?part=peek`, { signal: asking.signal, headers: { "HX-Request": "true", Accept: "text/html" } });
      if (!answer.ok || answer.headers.has("HX-Redirect")) throw new Error(String(answer.status));
      place.innerHTML = await answer.text();
      place.scrollTop = 0;
    } catch {
      if (!asking.signal.aborted) toast("The run could not be loaded. Try again.", "error");
    } finally {
      if (this.#asking === asking) place.removeAttribute("aria-busy");
    }
  }

  #close() {
    this.#asking?.abort();
    this.#mark(null);
    this.hidden = true;
  }

  /** @param {HTMLAnchorElement | null} link */
  #mark(link) {
    this.#link?.closest("tr")?.removeAttribute("aria-selected");
    link?.closest("tr")?.setAttribute("aria-selected", "true");
    this.#link = link;
    const here = new URL(location.href);
    if (link) here.searchParams.set("peek", link.pathname.split("/").at(-1) ?? "");
    else here.searchParams.delete("peek");
    history.replaceState(null, "", here);
  }
}
customElements.define("peek-panel", PeekPanel);
