/**
 * <trace-transcript data-base="/…/r/">: the keys and the run panel of a transcript, whose content is in the page.
 *
 * J and K move between blocks, the arrows expand and fold, Enter opens the run at the right, E goes to the next run that
 * failed by itself, Y copies the transcript as Markdown, T and W switch to the tree. Opening a run loads its fragment
 * into `#run`; without that panel (a thread) the run's page opens.
 */
import { insertFragment } from "../lib/fragments.js";
import { isShortcut } from "../lib/keyboard.js";
import { saveCookie } from "../lib/preferences.js";
import { showToast } from "../lib/toast.js";

class TraceTranscript extends HTMLElement {
  /** @type {AbortController | undefined} */
  #abortController;

  connectedCallback() {
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleKeydown);
    this.#closeButton?.addEventListener("click", this.#closeRun);
    const target =
      this.#blockOf(location.hash.replace(/^#b-/, "")) ??
      this.#blockOf(this.dataset.firstError ?? "");
    if (target) this.#show(target, { focus: false });
  }

  disconnectedCallback() {
    this.removeEventListener("click", this.#handleClick);
    document.removeEventListener("keydown", this.#handleKeydown);
    this.#closeButton?.removeEventListener("click", this.#closeRun);
  }

  get #panel() {
    return /** @type {HTMLElement | null} */ (document.querySelector("[data-run-panel]"));
  }

  get #closeButton() {
    return this.#panel?.querySelector("[data-close-run]");
  }

  /** The blocks that are not inside a folded part. */
  get #blocks() {
    const blocks = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".transcript-block")]);
    return blocks.filter((block) => block.checkVisibility());
  }

  /** @returns {HTMLElement | null} */
  get #current() {
    return document.activeElement instanceof HTMLElement && this.contains(document.activeElement)
      ? document.activeElement.closest(".transcript-block")
      : null;
  }

  /** @param {string} id */
  #blockOf(id) {
    return id ? document.getElementById(`b-${id}`) : null;
  }

  /**
   * Unfold what contains the element, and scroll to it.
   *
   * @param {HTMLElement} element
   * @param {{ focus?: boolean }} [options]
   */
  #show(element, { focus = true } = {}) {
    /** @type {Element | null | undefined} */
    let outer = element;
    while (outer && outer !== this) {
      if (outer instanceof HTMLDetailsElement) outer.open = true;
      outer = outer.parentElement;
    }
    const block = /** @type {HTMLElement} */ (element.closest(".transcript-block") ?? element);
    if (focus) block.focus({ preventScroll: true });
    element.scrollIntoView({ block: "nearest" });
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    const link = target.closest("a");
    if (link?.dataset.viewLink) saveCookie("trace", link.dataset.viewLink);
    if (target.closest("[data-expand-all]")) this.#toggleAll();
    if (target.closest("[data-next-error]")) {
      event.preventDefault();
      this.#nextError();
    }
    const copy = /** @type {HTMLElement | null} */ (target.closest("[data-copy-markdown]"));
    if (copy) this.#copy(copy.dataset.copyMarkdown ?? "");
    if (!link?.dataset.openRun || event.ctrlKey || event.metaKey || event.shiftKey || event.button)
      return;
    if (!this.#panel) return;
    event.preventDefault();
    this.#openRun(link.dataset.openRun);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.shiftKey) return;
    const blocks = this.#blocks;
    const current = this.#current;
    const index = current ? blocks.indexOf(current) : -1;
    const next = event.key === "j" ? blocks[index + 1] : blocks[Math.max(0, index - 1)];
    if (event.key === "j" || event.key === "k") {
      if (next) this.#show(next);
    } else if (event.key === "e") this.#nextError();
    else if (event.key === "Escape" && this.#panel && !this.#panel.hidden) this.#closeRun();
    else if (event.key === "y")
      /** @type {HTMLElement | null} */ (this.querySelector("[data-copy-markdown]"))?.click();
    else if (event.key === "w")
      /** @type {HTMLElement | null} */ (this.querySelector("[data-view-link=tree]"))?.click();
    else if (current && (event.key === "ArrowRight" || event.key === "ArrowLeft"))
      this.#fold(current, event.key === "ArrowRight");
    else if (current && event.key === "Enter" && event.target === current && this.#panel)
      this.#openRun(current.dataset.run ?? "");
    else return;
    event.preventDefault();
  };

  /**
   * @param {HTMLElement} block
   * @param {boolean} isOpen
   */
  #fold(block, isOpen) {
    for (const details of block.querySelectorAll("details")) {
      if (details.parentElement?.closest(".transcript-block") === block) details.open = isOpen;
    }
  }

  #toggleAll() {
    const all = [...this.querySelectorAll("details")];
    const isOpening = all.some((details) => !details.open);
    for (const details of all) details.open = isOpening;
  }

  #nextError() {
    const errors = /** @type {HTMLElement[]} */ ([...this.querySelectorAll("[data-error]")]);
    if (!errors.length) return;
    const last = this.querySelector("[data-current-error]");
    const index = last ? errors.indexOf(/** @type {HTMLElement} */ (last)) : -1;
    const next = /** @type {HTMLElement} */ (errors[(index + 1) % errors.length]);
    last?.removeAttribute("data-current-error");
    next.setAttribute("data-current-error", "");
    this.#show(next);
  }

  /** @param {string} url */
  async #copy(url) {
    try {
      const response = await fetch(url);
      if (!response.ok) throw new Error(String(response.status));
      await navigator.clipboard.writeText(await response.text());
      showToast("Copied as Markdown");
    } catch {
      showToast("The transcript could not be copied. Download it instead.", "error");
    }
  }

  /** @param {string} id */
  async #openRun(id) {
    const panel = this.#panel;
    const target = panel?.querySelector("#run");
    if (!panel || !(target instanceof HTMLElement)) return;
    this.#abortController?.abort();
    const abortController = (this.#abortController = new AbortController());
    this.#setPanelHidden(false);
    target.setAttribute("aria-busy", "true");
    for (const block of this.querySelectorAll("[data-run]"))
      block.toggleAttribute("data-selected", /** @type {HTMLElement} */ (block).dataset.run === id);
    try {
      const response = await fetch(`${this.dataset.base}${id}`, {
        signal: abortController.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      const redirect = response.headers.get("HX-Redirect");
      if (redirect) {
        location.assign(redirect);
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      await insertFragment(target, await response.text());
      target.focus({ preventScroll: true });
    } catch {
      if (!abortController.signal.aborted)
        showToast("The run could not be loaded. Try again.", "error");
    } finally {
      if (this.#abortController === abortController) target.removeAttribute("aria-busy");
    }
  }

  #closeRun = () => {
    this.#setPanelHidden(true);
    const selected = /** @type {HTMLElement | null} */ (this.querySelector("[data-selected]"));
    selected?.removeAttribute("data-selected");
    const block = /** @type {HTMLElement | null | undefined} */ (
      selected?.closest(".transcript-block")
    );
    block?.focus({ preventScroll: true });
  };

  /** @param {boolean} isHidden */
  #setPanelHidden(isHidden) {
    const panel = this.#panel;
    if (!panel) return;
    panel.hidden = isHidden;
    const splitter = panel.previousElementSibling;
    if (splitter instanceof HTMLElement) splitter.hidden = isHidden;
  }
}
customElements.define("trace-transcript", TraceTranscript);
