/**
 * <trace-transcript data-base="/…/r/">: the keys and the run panel of a transcript, whose content is in the page.
 *
 * J and K move between blocks, the arrows expand and fold, Enter opens the run at the right, E goes to the next run that
 * failed by itself, Y copies the transcript as Markdown, T and W switch to the tree, `/` finds text, D adds the block's
 * run to a dataset, P opens it in the playground, C comments on it and the digits score it. Opening a run loads its fragment into `#run`; without that panel (a thread)
 * the run's page opens. While the trace runs and the end is in view, the list asks for its new state.
 */
import { insertFragment } from "../lib/fragments.js";
import { isShortcut } from "../lib/keyboard.js";
import { saveCookie } from "../lib/preferences.js";
import { showToast } from "../lib/toast.js";

const LIVE_INTERVAL_MS = 2_000;
const MAX_MATCHES = 1_000;

class TraceTranscript extends HTMLElement {
  /** @type {Range[]} */
  #matches = [];
  #matchIndex = -1;
  #hasLaterPages = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #liveTimer;
  /** @type {AbortController | undefined} */
  #abortController;

  connectedCallback() {
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleKeydown);
    this.#closeButton?.addEventListener("click", this.#closeRun);
    this.#findField?.addEventListener("input", () => this.#find());
    this.#findField?.addEventListener("keydown", this.#handleFindKey);
    this.addEventListener("htmx:beforeSwap", this.#handleSwap);
    if (this.querySelector("[data-live]"))
      this.#liveTimer = setInterval(() => this.#refresh(), LIVE_INTERVAL_MS);
    const target =
      this.#blockOf(location.hash.replace(/^#b-/, "")) ??
      this.#blockOf(this.dataset.firstError ?? "");
    if (target) this.#show(target, { focus: false });
  }

  disconnectedCallback() {
    this.removeEventListener("click", this.#handleClick);
    document.removeEventListener("keydown", this.#handleKeydown);
    this.#closeButton?.removeEventListener("click", this.#closeRun);
    this.removeEventListener("htmx:beforeSwap", this.#handleSwap);
    clearInterval(this.#liveTimer);
    CSS.highlights?.delete("transcript-find");
  }

  get #findField() {
    return /** @type {HTMLInputElement | null} */ (this.querySelector("[data-find-bar] input"));
  }

  /** A list with later pages is not replaced by its first one. */
  #handleSwap = (/** @type {Event} */ event) => {
    if (/** @type {Element} */ (event.target).closest(".transcript-more"))
      this.#hasLaterPages = true;
  };

  /** Ask for the new state of a trace that runs, while its end is in view and the pointer is elsewhere. */
  #refresh() {
    const list = this.querySelector("[data-live]");
    const scroll = this.querySelector(".transcript-scroll");
    if (!list || !scroll) {
      clearInterval(this.#liveTimer);
      this.querySelector("[data-live-note]")?.remove();
      return;
    }
    const distance = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    const isIdle = document.hidden || this.#hasLaterPages || list.matches(":hover");
    if (isIdle || distance > 48) return;
    list.dispatchEvent(new CustomEvent("live"));
  }

  #openFind() {
    const bar = /** @type {HTMLElement | null} */ (this.querySelector("[data-find-bar]"));
    if (!bar) return;
    bar.hidden = false;
    this.#findField?.focus();
    this.#findField?.select();
  }

  #closeFind() {
    const bar = /** @type {HTMLElement | null} */ (this.querySelector("[data-find-bar]"));
    if (bar) bar.hidden = true;
    CSS.highlights?.delete("transcript-find");
    this.#current?.focus({ preventScroll: true });
  }

  #handleFindKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") this.#closeFind();
    else if (event.key === "Enter") this.#showMatch(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  /** Mark every place of the text in the messages, folded ones included. */
  #find() {
    const text = this.#findField?.value.toLowerCase() ?? "";
    this.#matches = [];
    this.#matchIndex = -1;
    const list = this.querySelector(".transcript-blocks");
    if (text && list) {
      const walker = document.createTreeWalker(list, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && this.#matches.length < MAX_MATCHES) {
        const node = /** @type {Text} */ (walker.currentNode);
        const content = node.data.toLowerCase();
        for (
          let at = content.indexOf(text);
          at >= 0;
          at = content.indexOf(text, at + text.length)
        ) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + text.length);
          this.#matches.push(range);
        }
      }
    }
    CSS.highlights?.set("transcript-find", new Highlight(...this.#matches));
    if (text && this.#matches.length) this.#showMatch(1);
    else this.#countMatches(text);
  }

  /** @param {number} step */
  #showMatch(step) {
    const count = this.#matches.length;
    if (!count) return;
    this.#matchIndex = (this.#matchIndex + step + count) % count;
    const range = this.#matches[this.#matchIndex];
    const element = range?.startContainer.parentElement;
    if (element) this.#show(element, { focus: false });
    this.#countMatches(this.#findField?.value ?? "");
  }

  /** @param {string} text */
  #countMatches(text) {
    const note = this.querySelector("[data-find-count]");
    if (!note) return;
    const total = this.#matches.length;
    note.textContent = total ? `${this.#matchIndex + 1} of ${total}` : text ? "No match" : "";
  }

  /**
   * Load the dialog that adds a run to a dataset.
   *
   * @param {string} id
   */
  async #addToDataset(id) {
    const dialog = document.getElementById("dialog");
    if (!this.dataset.dataset || !dialog) return;
    const response = await fetch(`${this.dataset.dataset}?run=${id}`, {
      headers: { "HX-Request": "true", Accept: "text/html" },
    }).catch(() => null);
    if (!response?.ok) showToast("The dialog could not be loaded. Try again.", "error");
    else await insertFragment(dialog, await response.text());
  }

  /**
   * Open a run at its feedback, and write a comment or give the score of a digit key.
   *
   * @param {string} id
   * @param {string} key
   */
  async #annotate(id, key) {
    await this.#openRun(id);
    const panel = this.#panel;
    /** @type {HTMLElement | null | undefined} */ (
      panel?.querySelector('[role="tab"][data-tab="feedback"]')
    )?.click();
    if (key !== "c") {
      const selector = ".annotate-key:first-child .segments button";
      const button = panel?.querySelectorAll(selector)[Number(key) - 1];
      if (button instanceof HTMLElement) button.click();
      return;
    }
    const field = /** @type {HTMLElement | null | undefined} */ (
      panel?.querySelector("annotate-form textarea")
    );
    const details = field?.closest("details");
    if (details) details.open = true;
    field?.focus();
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
    if (target.closest("[data-find]")) this.#openFind();
    const step = /** @type {HTMLElement | null} */ (target.closest("[data-find-step]"));
    if (step) this.#showMatch(Number(step.dataset.findStep));
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
    else if (event.key === "/" && this.#findField) this.#openFind();
    else if (event.key === "d" && current && this.dataset.dataset)
      this.#addToDataset(current.dataset.run ?? "");
    else if (current && this.#panel?.hidden && /^[c1-9]$/.test(event.key))
      this.#annotate(current.dataset.run ?? "", event.key);
    else if (event.key === "Escape" && this.#panel && !this.#panel.hidden) this.#closeRun();
    else if (event.key === "p")
      /** @type {HTMLElement | null} */ (
        (current ?? this.#panel)?.querySelector("[data-open-playground]")
      )?.click();
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
