/**
 * <example-peek><table>… <a class="row-link">…</table><aside hidden>… [data-preview-body] …</aside></example-peek>:
 * shows the example of a row next to the table. A click on a cell with `data-experiment` shows that experiment. Enter
 * opens the panel, and the example's own page from the open panel; J and K move; Escape closes. The URL parameter `peek`
 * holds the id of the example.
 */
import { insertFragment } from "../lib/fragments.js";
import { isShortcut } from "../lib/keyboard.js";
import { showToast } from "../lib/toast.js";

const NARROW_SCREEN = matchMedia("(max-width: 64rem)");

class ExamplePeek extends HTMLElement {
  /** @type {AbortController | undefined} */
  #abortController;
  /** @type {HTMLAnchorElement | null} */
  #link = null;
  #experiment = "";

  connectedCallback() {
    this.addEventListener("click", this.#handleClick);
    this.addEventListener("focusin", this.#handleFocus);
    document.addEventListener("keydown", this.#handleKeydown);
    const id = new URL(location.href).searchParams.get("peek");
    const row = id ? document.getElementById(`example-${id}`) : null;
    const link = row?.querySelector(".row-link");
    if (!(link instanceof HTMLAnchorElement) || NARROW_SCREEN.matches) return;
    link.focus({ preventScroll: true });
    row?.scrollIntoView({ block: "nearest" });
    this.#open(link);
  }

  disconnectedCallback() {
    this.#abortController?.abort();
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  get #panel() {
    return /** @type {HTMLElement} */ (this.querySelector("aside"));
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest("[data-preview-close]")) {
      this.#close();
      return;
    }
    const link = target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if (link.hasAttribute("data-peek-link")) {
      event.preventDefault();
      this.#experiment = new URL(link.href).searchParams.get("with") ?? this.#experiment;
      this.#load(link.href);
      return;
    }
    if (!link.classList.contains("row-link") || NARROW_SCREEN.matches) return;
    const isOpen = !this.#panel.hidden && link === this.#link;
    // A key press on a link is a click without `detail`.
    if (isOpen && !event.detail) return;
    event.preventDefault();
    const experiment = event.detail ? experimentAt(event) : "";
    if (isOpen && (!experiment || experiment === this.#experiment)) {
      this.#close();
      return;
    }
    if (experiment) this.#experiment = experiment;
    link.focus({ preventScroll: true });
    this.#open(link);
  };

  /** While the panel is open, it shows the row that has the focus. */
  #handleFocus = (/** @type {FocusEvent} */ event) => {
    const link = event.target;
    if (!(link instanceof HTMLAnchorElement) || !link.classList.contains("row-link")) return;
    if (!this.#panel.hidden && link !== this.#link) this.#open(link);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || this.#panel.hidden || !isShortcut(event)) return;
    this.#link?.focus({ preventScroll: true });
    this.#close();
  };

  /** @param {HTMLAnchorElement} link */
  #open(link) {
    this.#setCurrent(link);
    this.#panel.hidden = false;
    const url = new URL(link.href);
    if (this.#experiment) url.searchParams.set("with", this.#experiment);
    this.#load(url.href);
  }

  /** @param {string} url */
  async #load(url) {
    this.#abortController?.abort();
    const abortController = (this.#abortController = new AbortController());
    const body = /** @type {HTMLElement} */ (this.querySelector("[data-preview-body]"));
    const openLink = this.querySelector("[data-preview-open]");
    if (openLink instanceof HTMLAnchorElement) openLink.href = url;
    if (this.#link) this.#link.href = url;
    body.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(url, {
        signal: abortController.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      if (!response.ok || response.headers.has("HX-Redirect"))
        throw new Error(String(response.status));
      await insertFragment(body, await response.text());
    } catch {
      if (!abortController.signal.aborted)
        showToast("The example could not be loaded. Try again.", "error");
    } finally {
      if (this.#abortController === abortController) body.removeAttribute("aria-busy");
    }
  }

  #close() {
    this.#abortController?.abort();
    this.#setCurrent(null);
    this.#panel.hidden = true;
  }

  /** @param {HTMLAnchorElement | null} link */
  #setCurrent(link) {
    this.#link?.closest("tr")?.removeAttribute("aria-selected");
    link?.closest("tr")?.setAttribute("aria-selected", "true");
    this.#link = link;
    const url = new URL(location.href);
    if (link) url.searchParams.set("peek", link.pathname.split("/").at(-1) ?? "");
    else url.searchParams.delete("peek");
    history.replaceState(null, "", url);
  }
}

/**
 * Return the id of the experiment whose cell is under the pointer, except the baseline's: the panel always shows it.
 *
 * @param {MouseEvent} event
 */
function experimentAt({ clientX, clientY }) {
  for (const element of document.elementsFromPoint(clientX, clientY)) {
    const cell = element.closest("td[data-experiment]");
    if (cell instanceof HTMLElement && !cell.hasAttribute("data-baseline"))
      return cell.dataset.experiment ?? "";
  }
  return "";
}

customElements.define("example-peek", ExamplePeek);
