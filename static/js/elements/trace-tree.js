/**
 * <trace-tree data-base="/…/r/" selected="id">: the runs of one trace as a tree or as a waterfall, only the rows in
 * view. Data is a `json_script` named by `for`: `{ start, runs: [[id, parent, type, name, status, from, took, tokensIn,
 * tokensOut], …] }` in depth-first order, times in milliseconds, `parent` an index or -1. The row is cloned from
 * `template[data-row]`, so page and script share one markup.
 *
 * J, K and arrows walk, left and right fold, W switches to the waterfall. Choosing a run fetches its page's fragment
 * into `#run` and puts its address into the bar.
 */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "../../vendor/virtual.js";
import { compact, duration } from "../lib/figures.js";
import { redraw } from "../lib/icons.js";
import { isPlain, isTyping } from "../lib/keyboard.js";
import { remember } from "../lib/preferences.js";
import { toast } from "../lib/toast.js";

const TREE_ROW = 44;
const BAR_ROW = 28;
const PAUSE = 70;

/**
 * @typedef {{ id: string, index: number, parent: number, depth: number, type: string, name: string, status: string,
 *   from: number, took: number | null, tokensIn: number | null, tokensOut: number | null, below: number }} Run
 */

class TraceTree extends HTMLElement {
  /** @type {Run[]} */
  #runs = [];
  /** @type {Run[]} rows that are neither folded away nor filtered out */
  #rows = [];
  /** @type {Set<number>} */
  #folded = new Set();
  /** @type {Set<number> | null} matches of the search, with what leads to them */
  #kept = null;
  /** @type {Set<number>} */
  #matches = new Set();
  #selected = 0;
  #total = 1;
  /** @type {Virtualizer<HTMLElement, HTMLElement> | undefined} */
  #virtual;
  /** @type {(() => void) | undefined} */
  #unmount;
  /** @type {Map<string, HTMLElement>} */
  #drawn = new Map();
  /** @type {AbortController | undefined} */
  #asking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  connectedCallback() {
    this.#read();
    this.#tree.toggleAttribute("data-virtual", true);
    this.#tree.replaceChildren();
    this.#build();
    this.#layout();
    this.#virtual?.scrollToIndex(this.#rowOf(this.#selected), { align: "auto" });
    this.addEventListener("click", this.#click);
    document.addEventListener("keydown", this.#key);
    addEventListener("popstate", this.#back);
    this.querySelector("input[type=search]")?.addEventListener("input", this.#filter);
    for (const tool of this.querySelectorAll("[data-mode-button]")) tool.addEventListener("click", () => this.#mode(tool));
    this.querySelector("[data-fold-all]")?.addEventListener("click", () => this.#foldAll());
  }

  disconnectedCallback() {
    this.#unmount?.();
    document.removeEventListener("keydown", this.#key);
    removeEventListener("popstate", this.#back);
  }

  get #scroll() {
    return /** @type {HTMLElement} */ (this.querySelector(".tree-scroll"));
  }

  get #tree() {
    return /** @type {HTMLElement} */ (this.querySelector(".tree"));
  }

  get #isWaterfall() {
    return this.dataset.mode === "waterfall";
  }

  #read() {
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent ?? "{}";
    /** @type {{ total: number, runs: [string, number, string, string, string, number, number | null, number | null, number | null][] }} */
    const { total, runs } = JSON.parse(text);
    this.#total = Math.max(total, 0.001);
    runs.forEach(([id, parent, type, name, status, from, took, tokensIn, tokensOut], index) => {
      const depth = parent < 0 ? 0 : (this.#runs[parent]?.depth ?? 0) + 1;
      this.#runs.push({ id, index, parent, depth, type, name, status, from, took, tokensIn, tokensOut, below: 0 });
      const above = this.#runs[parent];
      if (above) above.below += 1;
    });
    const selected = this.#runs.findIndex((run) => run.id === this.getAttribute("selected"));
    this.#selected = Math.max(0, selected);
  }

  #build() {
    const options = () => ({
      count: this.#rows.length,
      getScrollElement: () => this.#scroll,
      estimateSize: () => (this.#isWaterfall ? BAR_ROW : TREE_ROW),
      getItemKey: (/** @type {number} */ at) => this.#rows[at]?.id ?? at,
      overscan: 10,
      paddingStart: this.#isWaterfall ? 0 : 4,
      paddingEnd: 4,
      scrollPaddingStart: this.#isWaterfall ? 28 : 4,
      scrollPaddingEnd: 4,
      scrollToFn: elementScroll,
      observeElementRect,
      observeElementOffset,
      onChange: () => this.#draw(),
    });
    this.#options = options;
    this.#virtual = new Virtualizer(options());
    this.#unmount = this.#virtual._didMount();
  }

  /** @type {() => any} */
  #options = () => ({});

  /** Which rows there are; then draw them. */
  #layout() {
    this.#rows = [];
    /** @type {number} */
    let hiddenBelow = Infinity;
    for (const run of this.#runs) {
      if (run.depth > hiddenBelow) continue;
      hiddenBelow = Infinity;
      if (this.#kept && !this.#kept.has(run.index)) continue;
      this.#rows.push(run);
      if (!this.#kept && this.#folded.has(run.index)) hiddenBelow = run.depth;
    }
    this.#virtual?.setOptions(this.#options());
    this.#virtual?.measure();
    this.#virtual?._willUpdate();
    this.#ruler();
    this.#draw();
  }

  #draw() {
    const virtual = this.#virtual;
    if (!virtual) return;
    this.#tree.style.setProperty("block-size", `${virtual.getTotalSize()}px`);
    /** @type {Set<string>} */
    const seen = new Set();
    for (const item of virtual.getVirtualItems()) {
      const run = this.#rows[item.index];
      if (!run) continue;
      seen.add(run.id);
      let row = this.#drawn.get(run.id);
      if (!row) {
        row = this.#row(run);
        this.#drawn.set(run.id, row);
        this.#tree.append(row);
      }
      row.style.setProperty("--top", `${item.start}px`);
      row.setAttribute("aria-selected", String(run.index === this.#selected));
      if (run.below) row.setAttribute("aria-expanded", String(!this.#folded.has(run.index)));
      row.classList.toggle("is-dim", this.#kept !== null && !this.#matches.has(run.index));
    }
    for (const [id, row] of this.#drawn) {
      if (seen.has(id)) continue;
      row.remove();
      this.#drawn.delete(id);
    }
    const current = this.#runs[this.#selected];
    const drawn = current && this.#drawn.get(current.id);
    if (drawn) this.#scroll.setAttribute("aria-activedescendant", drawn.id);
    else this.#scroll.removeAttribute("aria-activedescendant");
  }

  /** @param {Run} run */
  #row(run) {
    const template = /** @type {HTMLTemplateElement} */ (this.querySelector("template[data-row]"));
    const row = /** @type {HTMLAnchorElement} */ (template.content.firstElementChild?.cloneNode(true));
    row.id = `row-${run.id}`;
    row.href = `${this.dataset.base}${run.id}`;
    row.dataset.index = String(run.index);
    row.style.setProperty("--depth", String(run.depth));
    row.setAttribute("aria-level", String(run.depth + 1));
    if (run.status === "error") row.classList.add("is-error");
    const type = /** @type {HTMLElement} */ (row.querySelector(".run-type"));
    type.dataset.type = run.type;
    type.title = run.type;
    redraw(type.querySelector(".icon"), this.#icons[run.type] ?? "circle");
    fill(row, "type", run.type);
    fill(row, "name", run.name);
    fill(row, "took", run.took === null ? "running" : duration(run.took));
    const tokens = run.tokensIn || run.tokensOut;
    fill(row, "tokens", tokens ? `${compact(run.tokensIn ?? 0)} → ${compact(run.tokensOut ?? 0)} tok` : "");
    /** @type {HTMLElement | null} */ (row.querySelector("[data-error]"))?.toggleAttribute("hidden", run.status !== "error");
    /** @type {HTMLElement | null} */ (row.querySelector("[data-running]"))?.toggleAttribute("hidden", run.status !== "pending");
    const took = run.took ?? Math.max(0, this.#total - run.from);
    const track = /** @type {HTMLElement} */ (row.querySelector(".tree-track"));
    track.style.setProperty("--from", String(run.from / this.#total));
    track.style.setProperty("--share", String(took / this.#total));
    const label = /** @type {HTMLElement} */ (row.querySelector(".tree-bar-label"));
    label.textContent = duration(run.took);
    label.classList.toggle("is-before", (run.from + took) / this.#total > 0.85);
    return row;
  }

  get #icons() {
    /** @type {Record<string, string>} */
    const icons = JSON.parse(this.dataset.icons ?? "{}");
    return icons;
  }

  #ruler() {
    const scale = this.querySelector(".tree-ruler-scale");
    if (!scale) return;
    scale.replaceChildren();
    const rough = this.#total / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
    for (let at = 0; at < this.#total * 0.96; at += step) {
      const tick = document.createElement("span");
      tick.className = "tree-tick";
      tick.style.setProperty("--at", String(at / this.#total));
      tick.textContent = at === 0 ? "0" : duration(at);
      scale.append(tick);
    }
  }

  /** @param {number} index */
  #rowOf(index) {
    return Math.max(0, this.#rows.findIndex((run) => run.index === index));
  }

  #click = (/** @type {MouseEvent} */ event) => {
    const row = /** @type {Element} */ (event.target).closest(".tree-row");
    if (!(row instanceof HTMLElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const index = Number(row.dataset.index);
    if (/** @type {Element} */ (event.target).closest(".tree-fold") && this.#runs[index]?.below) this.#fold(index);
    else this.#choose(index, { push: true });
  };

  #key = (/** @type {KeyboardEvent} */ event) => {
    const inSearch = isTyping(event) && event.target === this.querySelector("input[type=search]");
    if (inSearch && event.key === "Escape") {
      /** @type {HTMLInputElement} */ (event.target).value = "";
      this.#filter();
      this.#scroll.focus();
    }
    if (inSearch && event.key === "Enter") {
      const first = this.#rows.find((run) => this.#matches.has(run.index));
      if (first) this.#choose(first.index);
    }
    if (!isPlain(event) || event.shiftKey) return;
    const inTree = this.contains(document.activeElement);
    const at = this.#rowOf(this.#selected);
    const run = this.#runs[this.#selected];
    if (!run) return;
    if (event.key === "j" || (inTree && event.key === "ArrowDown")) this.#walk(at + 1);
    else if (event.key === "k" || (inTree && event.key === "ArrowUp")) this.#walk(at - 1);
    else if (inTree && event.key === "Home") this.#walk(0);
    else if (inTree && event.key === "End") this.#walk(this.#rows.length - 1);
    else if (inTree && event.key === "ArrowLeft") {
      if (run.below && !this.#folded.has(run.index)) this.#fold(run.index);
      else if (run.parent >= 0) this.#choose(run.parent);
    } else if (inTree && event.key === "ArrowRight") {
      if (run.below && this.#folded.has(run.index)) this.#fold(run.index);
      else if (run.below) this.#choose(run.index + 1);
    } else if (event.key === "w") {
      const other = this.querySelector(`[data-mode-button="${this.#isWaterfall ? "tree" : "waterfall"}"]`);
      if (other) this.#mode(other);
    } else return;
    event.preventDefault();
  };

  /** @param {number} at */
  #walk(at) {
    const run = this.#rows[Math.max(0, Math.min(at, this.#rows.length - 1))];
    if (run && run.index !== this.#selected) this.#choose(run.index);
  }

  #back = () => {
    const id = location.pathname.split("/").at(-1);
    const index = this.#runs.findIndex((run) => run.id === id);
    if (index >= 0) this.#choose(index, { silent: true });
  };

  /**
   * @param {number} index
   * @param {{ push?: boolean, silent?: boolean }} [how]
   */
  #choose(index, { push = false, silent = false } = {}) {
    const run = this.#runs[index];
    if (!run) return;
    this.#selected = index;
    this.#virtual?.scrollToIndex(this.#rowOf(index), { align: "auto" });
    this.#draw();
    const address = `${this.dataset.base}${run.id}${location.search}`;
    if (!silent) history[push ? "pushState" : "replaceState"](null, "", address);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(run, address), push ? 0 : PAUSE);
  }

  /**
   * @param {Run} run
   * @param {string} address
   */
  async #open(run, address) {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const place = document.getElementById("run");
    if (!place) return;
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, { signal: asking.signal, headers: { "HX-Request": "true", Accept: "text/html" } });
      const elsewhere = answer.headers.get("HX-Redirect");
      if (elsewhere) {
        location.assign(elsewhere);
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      place.innerHTML = await answer.text();
      place.scrollTop = 0;
      document.title = `${run.name} · Slipway`;
    } catch {
      if (!asking.signal.aborted) toast("This run could not be fetched. Try again.", "error");
    } finally {
      if (this.#asking === asking) place.removeAttribute("aria-busy");
    }
  }

  /** @param {number} index */
  #fold(index) {
    if (!this.#folded.delete(index)) this.#folded.add(index);
    this.#layout();
  }

  #foldAll() {
    const parents = this.#runs.filter((run) => run.below && run.depth > 0);
    const folds = this.#folded.size === 0;
    this.#folded = new Set(folds ? parents.map((run) => run.index) : []);
    redraw(this.querySelector("[data-fold-all] .icon"), folds ? "chevrons-up-down" : "chevrons-down-up");
    this.#layout();
  }

  /** @param {Element} tool */
  #mode(tool) {
    const mode = tool.getAttribute("data-mode-button") ?? "tree";
    this.dataset.mode = mode;
    remember("trace", mode === "tree" ? "" : mode);
    for (const other of this.querySelectorAll("[data-mode-button]")) other.setAttribute("aria-pressed", String(other === tool));
    this.#layout();
    this.#virtual?.scrollToIndex(this.#rowOf(this.#selected), { align: "auto" });
  }

  #filter = () => {
    const text = /** @type {HTMLInputElement | null} */ (this.querySelector("input[type=search]"))?.value.trim().toLowerCase();
    this.#matches = new Set();
    this.#kept = null;
    if (text) {
      this.#kept = new Set();
      for (const run of this.#runs) {
        if (!`${run.name} ${run.type} ${run.status} ${run.id}`.toLowerCase().includes(text)) continue;
        this.#matches.add(run.index);
        for (let at = run.index; at >= 0; at = this.#runs[at]?.parent ?? -1) this.#kept.add(at);
      }
    }
    this.#layout();
  };
}

/**
 * @param {Element} row
 * @param {string} slot
 * @param {string} text
 */
function fill(row, slot, text) {
  const place = row.querySelector(`[data-slot="${slot}"]`);
  if (place) place.textContent = text;
}

customElements.define("trace-tree", TraceTree);
