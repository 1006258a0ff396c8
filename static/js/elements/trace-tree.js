/**
 * <trace-tree data-base="/…/r/" selected="id">: shows the runs of one trace as a tree or a waterfall and
 * renders only the rows in view. Data is a `json_script` named by `for`, or fetched from `src` when it is large: see
 * js/trace/model.js. Rows are cloned from `template[data-row]`, so page and script share one markup.
 *
 * J, K and the arrow keys move, left and right collapse and expand, E selects the next error, D adds the selected run to
 * a dataset, W switches to the waterfall. Dragging on the ruler zooms. Selecting a run loads its fragment into `#run` and updates the URL.
 */
import { insertFragment } from "../lib/fragments.js";
import { setIcon } from "../lib/icons.js";
import { isShortcut, isTyping } from "../lib/keyboard.js";
import { saveCookie } from "../lib/preferences.js";
import { showToast } from "../lib/toast.js";
import { findMatches, readRuns, findVisibleRuns } from "../trace/model.js";
import { createRow } from "../trace/row.js";
import { bindZoom, renderRuler } from "../trace/ruler.js";
import { findIdleGaps, Scale } from "../trace/scale.js";

const TREE_ROW_PX = 44;
const WATERFALL_ROW_PX = 28;
const RULER_PX = 28;
const PADDING_PX = 4;
const ROWS_BEYOND_VIEW = 10;
const OPEN_DELAY_MS = 70;

/** @typedef {import("../trace/model.js").Run} Run */

class TraceTree extends HTMLElement {
  /** @type {Run[]} */
  #runs = [];
  /** @type {Run[]} rows that are neither collapsed nor filtered out */
  #rows = [];
  /** @type {Set<number>} */
  #collapsed = new Set();
  /** @type {Set<number> | null} matches of the search and their ancestors; null without a search */
  #shown = null;
  /** @type {Set<number>} */
  #matches = new Set();
  #selected = 0;
  #scale = new Scale(1);
  /** @type {Record<string, string>} */
  #options = {};
  #resizeObserver = new ResizeObserver(() => this.#renderRows());
  /** @type {Map<string, HTMLElement>} */
  #renderedRows = new Map();
  /** @type {AbortController | undefined} */
  #abortController;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  async connectedCallback() {
    if (!(await this.#loadRuns())) return;
    this.#tree.toggleAttribute("data-virtual", true);
    this.#tree.replaceChildren();
    this.#readOptions();
    this.#layout();
    this.#scrollToRow(this.#rowIndexOf(this.#selected));
    this.#scroll.addEventListener("scroll", () => this.#renderRows(), { passive: true });
    this.#resizeObserver.observe(this.#scroll);
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleKeydown);
    addEventListener("popstate", this.#handlePopState);
    document.addEventListener("feedback-changed", this.#handleFeedbackChange);
    this.querySelector("input[type=search]")?.addEventListener("input", this.#filter);
    for (const tool of this.querySelectorAll("[data-mode-button]"))
      tool.addEventListener("click", () => this.#setMode(tool));
    this.#transcriptLink?.addEventListener("click", () => saveCookie("trace", "transcript"));
    this.querySelector("[data-collapse-all]")?.addEventListener("click", () => this.#toggleAll());
    this.querySelector("[data-next-error]")?.addEventListener("click", () => this.#nextError());
    this.querySelector(".tree-options")?.addEventListener("change", this.#handleOptionChange);
    const ruler = this.#ruler;
    if (ruler)
      bindZoom(ruler, this.#scroll, {
        scale: () => this.#scale,
        isWaterfall: () => this.#isWaterfall,
        onZoom: () => this.#rerender(),
      });
  }

  disconnectedCallback() {
    this.#resizeObserver.disconnect();
    document.removeEventListener("keydown", this.#handleKeydown);
    removeEventListener("popstate", this.#handlePopState);
    document.removeEventListener("feedback-changed", this.#handleFeedbackChange);
  }

  get #scroll() {
    return /** @type {HTMLElement} */ (this.querySelector(".tree-scroll"));
  }

  get #tree() {
    return /** @type {HTMLElement} */ (this.querySelector(".tree"));
  }

  get #ruler() {
    return /** @type {HTMLElement | null} */ (this.querySelector(".tree-ruler-scale"));
  }

  get #transcriptLink() {
    return /** @type {HTMLElement | null} */ (this.querySelector("[data-transcript-link]"));
  }

  get #isWaterfall() {
    return this.dataset.mode === "waterfall";
  }

  /** @returns {Promise<boolean>} whether the runs were loaded */
  async #loadRuns() {
    const src = this.getAttribute("src");
    /** @type {{ total: number, runs: import("../trace/model.js").RunTuple[] }} */
    let data;
    try {
      const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
      data = src
        ? await (await fetch(src, { headers: { Accept: "application/json" } })).json()
        : JSON.parse(text ?? "{}");
    } catch {
      showToast("The runs could not be loaded. Reload the page.", "error");
      return false;
    }
    if (!this.isConnected || !data.runs) return false;
    this.#scale = new Scale(data.total);
    this.#runs = readRuns(data.runs, data.total);
    this.#selected = Math.max(
      0,
      this.#runs.findIndex((run) => run.id === this.getAttribute("selected")),
    );
    return true;
  }

  /** All rows of a mode have one height. */
  get #rowHeight() {
    return this.#isWaterfall ? WATERFALL_ROW_PX : TREE_ROW_PX;
  }

  /** Where the tree begins in the content that scrolls: the ruler stands above it. */
  get #treeStart() {
    const scroll = this.#scroll;
    const top = this.#tree.getBoundingClientRect().top - scroll.getBoundingClientRect().top;
    return top + scroll.scrollTop - scroll.clientTop;
  }

  /** @param {number} index */
  #rowStart(index) {
    return (this.#isWaterfall ? 0 : PADDING_PX) + index * this.#rowHeight;
  }

  /**
   * Scroll as little as necessary to show the row between the ruler and the end.
   *
   * @param {number} index
   */
  #scrollToRow(index) {
    const scroll = this.#scroll;
    const start = this.#treeStart + this.#rowStart(index);
    const least = start + this.#rowHeight + PADDING_PX - scroll.clientHeight;
    const most = start - (this.#isWaterfall ? RULER_PX : PADDING_PX);
    if (scroll.scrollTop < least) scroll.scrollTop = least;
    if (scroll.scrollTop > most) scroll.scrollTop = most;
  }

  /** Compute the visible rows and render them. */
  #layout() {
    this.#rows = findVisibleRuns(
      this.#runs,
      this.#collapsed,
      this.#shown,
      Number(this.#options.minDuration ?? 0),
    );
    const height = this.#rowStart(this.#rows.length) + PADDING_PX;
    this.#tree.style.setProperty("block-size", `${height}px`);
    const ruler = this.#ruler;
    if (ruler) renderRuler(ruler, this.#scale);
    this.#renderRows();
  }

  /** Restore the options menu from local storage; options are attributes that the style sheet reads. */
  #readOptions() {
    try {
      this.#options = JSON.parse(localStorage.getItem("trace-options") ?? "{}");
    } catch {
      this.#options = {};
    }
    for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (
      this.querySelectorAll("[data-option]")
    )) {
      const stored = this.#options[field.dataset.option ?? ""];
      if (stored === undefined) continue;
      if (field.type === "checkbox") field.checked = stored === "on";
      else field.value = stored;
    }
    this.#applyOptions();
  }

  #handleOptionChange = () => {
    for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (
      this.querySelectorAll("[data-option]")
    )) {
      this.#options[field.dataset.option ?? ""] =
        field.type === "checkbox" ? (field.checked ? "on" : "off") : field.value;
    }
    localStorage.setItem("trace-options", JSON.stringify(this.#options));
    this.#applyOptions();
    this.#rerender();
  };

  #applyOptions() {
    for (const name of ["metrics", "cost", "scores"])
      this.toggleAttribute(`data-hide-${name}`, this.#options[name] === "off");
    this.toggleAttribute("data-share", this.#options.share === "on");
    this.#scale.setGaps(
      this.#options.foldIdle === "on" ? findIdleGaps(this.#runs, this.#scale.total) : [],
    );
  }

  /** Discard all rows and render them again. */
  #rerender() {
    for (const row of this.#renderedRows.values()) row.remove();
    this.#renderedRows.clear();
    this.#layout();
  }

  #renderRows() {
    /** @type {Set<string>} */
    const seen = new Set();
    const template = /** @type {HTMLTemplateElement} */ (this.querySelector("template[data-row]"));
    const icons = this.#icons;
    const begin = this.#scroll.scrollTop - this.#treeStart;
    const first = Math.floor(begin / this.#rowHeight) - ROWS_BEYOND_VIEW;
    const end = (begin + this.#scroll.clientHeight) / this.#rowHeight + ROWS_BEYOND_VIEW;
    for (let index = Math.max(0, first); index < Math.min(end, this.#rows.length); index += 1) {
      const run = this.#rows[index];
      if (!run) continue;
      seen.add(run.id);
      let row = this.#renderedRows.get(run.id);
      if (!row) {
        row = createRow(template, run, {
          scale: this.#scale,
          base: this.dataset.base ?? "",
          icons,
        });
        this.#renderedRows.set(run.id, row);
        this.#tree.append(row);
      }
      row.style.setProperty("--top", `${this.#rowStart(index)}px`);
      row.setAttribute("aria-selected", String(run.index === this.#selected));
      if (run.childCount)
        row.setAttribute("aria-expanded", String(!this.#collapsed.has(run.index)));
      row.classList.toggle("is-dimmed", this.#shown !== null && !this.#matches.has(run.index));
    }
    for (const [id, row] of this.#renderedRows) {
      if (seen.has(id)) continue;
      row.remove();
      this.#renderedRows.delete(id);
    }
    const current = this.#runs[this.#selected];
    const currentRow = current && this.#renderedRows.get(current.id);
    if (currentRow) this.#scroll.setAttribute("aria-activedescendant", currentRow.id);
    else this.#scroll.removeAttribute("aria-activedescendant");
  }

  get #icons() {
    /** @type {Record<string, string>} */
    const icons = JSON.parse(this.dataset.icons ?? "{}");
    return icons;
  }

  #nextError() {
    const runs = this.#runs;
    const errors = runs.filter((run) => run.status === "error");
    const parents = new Set(errors.map((run) => run.parent));
    // Runs that failed by themselves, not those around them.
    const failed = errors.filter((run) => !parents.has(run.index));
    const next = failed.find((run) => run.index > this.#selected) ?? failed[0];
    if (!next) return;
    for (let index = next.parent; index >= 0; index = runs[index]?.parent ?? -1)
      this.#collapsed.delete(index);
    this.#layout();
    this.#select(next.index);
  }

  /** @param {number} index */
  #rowIndexOf(index) {
    return Math.max(
      0,
      this.#rows.findIndex((run) => run.index === index),
    );
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const row = /** @type {Element} */ (event.target).closest(".tree-row");
    if (
      !(row instanceof HTMLElement) ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      event.button
    )
      return;
    event.preventDefault();
    const index = Number(row.dataset.index);
    if (
      /** @type {Element} */ (event.target).closest(".tree-toggle") &&
      this.#runs[index]?.childCount
    )
      this.#toggleRun(index);
    else this.#select(index, { push: true });
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const inSearch = isTyping(event) && event.target === this.querySelector("input[type=search]");
    if (inSearch && event.key === "Escape") {
      /** @type {HTMLInputElement} */ (event.target).value = "";
      this.#filter();
      this.#scroll.focus();
    }
    if (inSearch && event.key === "Enter") {
      const first = this.#rows.find((run) => this.#matches.has(run.index));
      if (first) this.#select(first.index);
    }
    if (!isShortcut(event) || event.shiftKey) return;
    const inTree = this.contains(document.activeElement);
    const index = this.#rowIndexOf(this.#selected);
    const run = this.#runs[this.#selected];
    if (!run) return;
    if (event.key === "j" || (inTree && event.key === "ArrowDown")) this.#moveTo(index + 1);
    else if (event.key === "k" || (inTree && event.key === "ArrowUp")) this.#moveTo(index - 1);
    else if (inTree && event.key === "Home") this.#moveTo(0);
    else if (inTree && event.key === "End") this.#moveTo(this.#rows.length - 1);
    else if (inTree && event.key === "ArrowLeft") {
      if (run.childCount && !this.#collapsed.has(run.index)) this.#toggleRun(run.index);
      else if (run.parent >= 0) this.#select(run.parent);
    } else if (inTree && event.key === "ArrowRight") {
      if (run.childCount && this.#collapsed.has(run.index)) this.#toggleRun(run.index);
      else if (run.childCount) this.#select(run.index + 1);
    } else if (event.key === "e") this.#nextError();
    else if (event.key === "p") this.#click("#run [data-open-playground]");
    else if (event.key === "d") this.#click("#run [data-add-to-dataset]");
    else if (event.key === "w") {
      const other = this.querySelector(
        `[data-mode-button="${this.#isWaterfall ? "tree" : "waterfall"}"]`,
      );
      if (other) this.#setMode(other);
    } else if (event.key === "t" && this.#transcriptLink) this.#transcriptLink.click();
    else return;
    event.preventDefault();
  };

  /** @param {string} selector */
  #click(selector) {
    /** @type {HTMLElement | null} */ (document.querySelector(selector))?.click();
  }

  /** @param {number} index */
  #moveTo(index) {
    const run = this.#rows[Math.max(0, Math.min(index, this.#rows.length - 1))];
    if (run && run.index !== this.#selected) this.#select(run.index);
  }

  #handlePopState = () => {
    const id = location.pathname.split("/").at(-1);
    const index = this.#runs.findIndex((run) => run.id === id);
    if (index >= 0) this.#select(index, { silent: true });
  };

  #handleFeedbackChange = (/** @type {Event} */ event) => {
    const { run: id, feedback } = /** @type {CustomEvent} */ (event).detail;
    const run = this.#runs.find((other) => other.id === id);
    if (!run) return;
    run.feedback = feedback;
    this.#rerender();
  };

  /**
   * @param {number} index
   * @param {{ push?: boolean, silent?: boolean }} [options]
   */
  #select(index, { push = false, silent = false } = {}) {
    const run = this.#runs[index];
    if (!run) return;
    this.#selected = index;
    this.#scrollToRow(this.#rowIndexOf(index));
    this.#renderRows();
    const url = `${this.dataset.base}${run.id}${location.search}`;
    if (!silent) history[push ? "pushState" : "replaceState"](null, "", url);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#loadRun(run, url), push ? 0 : OPEN_DELAY_MS);
  }

  /**
   * @param {Run} run
   * @param {string} url
   */
  async #loadRun(run, url) {
    this.#abortController?.abort();
    const abortController = (this.#abortController = new AbortController());
    const target = document.getElementById("run");
    if (!target) return;
    target.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(url, {
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
      document.title = `${run.name} · Slipway`;
    } catch {
      if (!abortController.signal.aborted)
        showToast("The run could not be loaded. Try again.", "error");
    } finally {
      if (this.#abortController === abortController) target.removeAttribute("aria-busy");
    }
  }

  /** @param {number} index */
  #toggleRun(index) {
    if (!this.#collapsed.delete(index)) this.#collapsed.add(index);
    this.#layout();
  }

  #toggleAll() {
    const parents = this.#runs.filter((run) => run.childCount && run.depth > 0);
    const isCollapsing = this.#collapsed.size === 0;
    this.#collapsed = new Set(isCollapsing ? parents.map((run) => run.index) : []);
    setIcon(
      this.querySelector("[data-collapse-all] .icon"),
      isCollapsing ? "chevrons-up-down" : "chevrons-down-up",
    );
    this.#layout();
  }

  /** @param {Element} tool */
  #setMode(tool) {
    const mode = tool.getAttribute("data-mode-button") ?? "tree";
    this.dataset.mode = mode;
    saveCookie("trace", mode === "tree" ? "" : mode);
    for (const other of this.querySelectorAll("[data-mode-button]"))
      other.setAttribute("aria-pressed", String(other === tool));
    this.#layout();
    this.#scrollToRow(this.#rowIndexOf(this.#selected));
    this.#renderRows();
  }

  #filter = () => {
    const text = /** @type {HTMLInputElement | null} */ (
      this.querySelector("input[type=search]")
    )?.value
      .trim()
      .toLowerCase();
    this.#matches = new Set();
    this.#shown = null;
    if (text) {
      const searchText = (/** @type {Run} */ run) =>
        `${run.name} ${run.type} ${run.status} ${run.id}`.toLowerCase();
      const { matched, shown } = findMatches(this.#runs, (run) => searchText(run).includes(text));
      this.#matches = matched;
      this.#shown = shown;
    }
    this.#layout();
  };
}

customElements.define("trace-tree", TraceTree);
