/**
 * <run-preview hidden><aside>… [data-preview-body] …</aside></run-preview>: previews the run of a row next to the list.
 * J and K move, Enter opens the page, Escape closes. The URL parameter `preview` holds the id of the run.
 */
import { isShortcut } from "../lib/keyboard.js";
import { showToast } from "../lib/toast.js";

const NARROW_SCREEN = matchMedia("(max-width: 64rem)");

class RunPreview extends HTMLElement {
  /** @type {AbortController | undefined} */
  #abortController;
  /** @type {HTMLAnchorElement | null} */
  #link = null;

  connectedCallback() {
    document.addEventListener("row-open", this.#handleRowOpen);
    document.addEventListener("focusin", this.#handleFocus);
    document.addEventListener("keydown", this.#handleKeydown, true);
    this.querySelector("[data-preview-close]")?.addEventListener("click", () => this.#close());
    if (NARROW_SCREEN.matches) return;
    const id = new URL(location.href).searchParams.get("preview");
    const link =
      id &&
      /** @type {HTMLAnchorElement | null} */ (
        document.querySelector(`#run-${CSS.escape(id)} .row-link`)
      );
    if (link) this.#open(link);
  }

  disconnectedCallback() {
    document.removeEventListener("row-open", this.#handleRowOpen);
    document.removeEventListener("focusin", this.#handleFocus);
    document.removeEventListener("keydown", this.#handleKeydown, true);
  }

  #handleRowOpen = (/** @type {Event} */ event) => {
    if (NARROW_SCREEN.matches) return;
    event.preventDefault();
    const { link } = /** @type {CustomEvent} */ (event).detail;
    if (link === this.#link) this.#close();
    else {
      link.focus({ preventScroll: true });
      this.#open(link);
    }
  };

  /** While the panel is open, it shows the row that has the focus. */
  #handleFocus = (/** @type {FocusEvent} */ event) => {
    const link = event.target;
    if (
      this.hidden ||
      !(link instanceof HTMLAnchorElement) ||
      !link.matches(".row-link") ||
      link === this.#link
    )
      return;
    this.#open(link);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || this.hidden || !isShortcut(event)) return;
    this.#link?.focus({ preventScroll: true });
    this.#close();
  };

  /** @param {HTMLAnchorElement} link */
  async #open(link) {
    this.#setCurrent(link);
    this.hidden = false;
    this.#abortController?.abort();
    const abortController = (this.#abortController = new AbortController());
    const body = /** @type {HTMLElement} */ (this.querySelector("[data-preview-body]"));
    const openLink = this.querySelector("[data-preview-open]");
    if (openLink instanceof HTMLAnchorElement) openLink.href = link.href;
    body.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(`${link.href}?part=preview`, {
        signal: abortController.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      if (!response.ok || response.headers.has("HX-Redirect"))
        throw new Error(String(response.status));
      body.innerHTML = await response.text();
      body.scrollTop = 0;
    } catch {
      if (!abortController.signal.aborted)
        showToast("The run could not be loaded. Try again.", "error");
    } finally {
      if (this.#abortController === abortController) body.removeAttribute("aria-busy");
    }
  }

  #close() {
    this.#abortController?.abort();
    this.#setCurrent(null);
    this.hidden = true;
  }

  /** @param {HTMLAnchorElement | null} link */
  #setCurrent(link) {
    this.#link?.closest("tr")?.removeAttribute("aria-selected");
    link?.closest("tr")?.setAttribute("aria-selected", "true");
    this.#link = link;
    const url = new URL(location.href);
    if (link) url.searchParams.set("preview", link.pathname.split("/").at(-1) ?? "");
    else url.searchParams.delete("preview");
    history.replaceState(null, "", url);
  }
}
customElements.define("run-preview", RunPreview);
