/**
 * <trace-tree data-base="/…/r/" selected="id">: the runs of one trace as a tree or as a waterfall, only the rows in
 * view. Data is a `json_script` named by `for`, or fetched from `src` when it is large: see js/trace/model.js. The row
 * is cloned from `template[data-row]`, so page and script share one markup.
 *
 * J, K and arrows walk, left and right fold, E goes to the next error, W switches to the waterfall, whose ruler is
 * dragged to zoom. Choosing a run fetches its page's fragment into `#run` and puts its address into the bar.
 */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "../../vendor/virtual.js";
import { compact, duration } from "../lib/figures.js";
import { redraw } from "../lib/icons.js";
import { isPlain, isTyping } from "../lib/keyboard.js";
import { remember } from "../lib/preferences.js";
import { toast } from "../lib/toast.js";
import { FORMS } from "../lib/units.js";
import { matching, readRuns, visible } from "../trace/model.js";
import { idle, Scale } from "../trace/scale.js";

const TREE_ROW = 44;
const BAR_ROW = 28;
const PAUSE = 70;

/** @typedef {import("../trace/model.js").Run} Run */

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
  #scale = new Scale(1);
  /** @type {Record<string, string>} */
  #chosen = {};
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

  async connectedCallback() {
    if (!(await this.#read())) return;
    this.#tree.toggleAttribute("data-virtual", true);
    this.#tree.replaceChildren();
    this.#build();
    this.#readOptions();
    this.#layout();
    this.#virtual?.scrollToIndex(this.#rowOf(this.#selected), { align: "auto" });
    this.addEventListener("click", this.#click);
    document.addEventListener("keydown", this.#key);
    addEventListener("popstate", this.#back);
    this.querySelector("input[type=search]")?.addEventListener("input", this.#filter);
    for (const tool of this.querySelectorAll("[data-mode-button]")) tool.addEventListener("click", () => this.#mode(tool));
    this.querySelector("[data-fold-all]")?.addEventListener("click", () => this.#foldAll());
    this.querySelector("[data-next-error]")?.addEventListener("click", () => this.#nextError());
    this.querySelector(".tree-options")?.addEventListener("change", this.#option);
    this.#zoomable(/** @type {HTMLElement | null} */ (this.querySelector(".tree-ruler-scale")));
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

  /** @returns {Promise<boolean>} whether there is a tree */
  async #read() {
    const src = this.getAttribute("src");
    /** @type {{ total: number, runs: import("../trace/model.js").Line[] }} */
    let said;
    try {
      const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
      said = src ? await (await fetch(src, { headers: { Accept: "application/json" } })).json() : JSON.parse(text ?? "{}");
    } catch {
      toast("The runs could not be loaded. Reload the page.", "error");
      return false;
    }
    if (!this.isConnected || !said.runs) return false;
    this.#scale = new Scale(said.total);
    this.#runs = readRuns(said.runs, said.total);
    this.#selected = Math.max(0, this.#runs.findIndex((run) => run.id === this.getAttribute("selected")));
    return true;
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
    this.#rows = visible(this.#runs, this.#folded, this.#kept, Number(this.#chosen.least ?? 0));
    this.#virtual?.setOptions(this.#options());
    this.#virtual?.measure();
    this.#virtual?._willUpdate();
    this.#ruler();
    this.#draw();
  }

  /** What was chosen in the menu: kept in this browser, shown as attributes that the style sheet reads. */
  #readOptions() {
    try {
      this.#chosen = JSON.parse(localStorage.getItem("trace-options") ?? "{}");
    } catch {
      this.#chosen = {};
    }
    for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (this.querySelectorAll("[data-option]"))) {
      const kept = this.#chosen[field.dataset.option ?? ""];
      if (kept === undefined) continue;
      if (field.type === "checkbox") field.checked = kept === "on";
      else field.value = kept;
    }
    this.#applyOptions();
  }

  #option = () => {
    for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (this.querySelectorAll("[data-option]"))) {
      this.#chosen[field.dataset.option ?? ""] = field.type === "checkbox" ? (field.checked ? "on" : "off") : field.value;
    }
    localStorage.setItem("trace-options", JSON.stringify(this.#chosen));
    this.#applyOptions();
    this.#renew();
  };

  #applyOptions() {
    for (const name of ["figures", "cost", "scores"]) this.toggleAttribute(`data-no-${name}`, this.#chosen[name] === "off");
    this.toggleAttribute("data-share", this.#chosen.share === "on");
    this.#scale.fold(this.#chosen.gaps === "off" ? [] : idle(this.#runs, this.#scale.total));
  }

  /** All rows made anew. */
  #renew() {
    for (const row of this.#drawn.values()) row.remove();
    this.#drawn.clear();
    this.#layout();
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
    const isSpread = run.took !== null && run.last - run.from > run.took * 1.01 + 1;
    fill(row, "spread", isSpread ? `Σ ${duration(run.last - run.from)}` : "");
    const tokens = run.tokensIn || run.tokensOut;
    fill(row, "tokens", tokens ? `${compact(run.tokensIn ?? 0)} → ${compact(run.tokensOut ?? 0)} tok` : "");
    fill(row, "cost", run.cost ? (FORMS.usd?.(run.cost) ?? "") : "");
    const scores = row.querySelector("[data-scores]");
    for (const [key, value] of run.said.slice(0, 3)) scores?.append(chip(key, value));
    /** @type {HTMLElement | null} */ (row.querySelector("[data-error]"))?.toggleAttribute("hidden", run.status !== "error");
    /** @type {HTMLElement | null} */ (row.querySelector("[data-running]"))?.toggleAttribute("hidden", run.status !== "pending");
    const took = run.took ?? Math.max(0, this.#scale.total - run.from);
    row.style.setProperty("--of-trace", String(Math.min(1, took / this.#scale.total)));
    const from = this.#scale.place(run.from);
    const to = this.#scale.place(run.from + took);
    const track = /** @type {HTMLElement} */ (row.querySelector(".tree-track"));
    track.style.setProperty("--from", String(from));
    track.style.setProperty("--share", String(to - from));
    const isOutside = run.from > this.#scale.window.to || run.from + took < this.#scale.window.from;
    track.toggleAttribute("data-outside", isOutside);
    const first = /** @type {HTMLElement} */ (row.querySelector(".tree-first"));
    first.hidden = run.firstToken === null || isOutside;
    if (run.firstToken !== null) {
      first.style.setProperty("--at", String(this.#scale.place(run.from + run.firstToken)));
      first.title = `First token after ${duration(run.firstToken)}`;
    }
    const label = /** @type {HTMLElement} */ (row.querySelector(".tree-bar-label"));
    label.textContent = duration(run.took);
    label.classList.toggle("is-before", to > 0.85 && from >= 0.15);
    label.classList.toggle("is-inside", to > 0.85 && from < 0.15);
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
    for (const { place, text } of this.#scale.ticks(scale.clientWidth || undefined)) {
      const tick = document.createElement("span");
      tick.className = "tree-tick";
      tick.style.setProperty("--at", String(place));
      tick.textContent = text;
      scale.append(tick);
    }
    for (const gap of this.#scale.folded) {
      const mark = document.createElement("span");
      mark.className = "tree-gap";
      mark.style.setProperty("--at", String(gap.place));
      mark.style.setProperty("--share", String(gap.width));
      mark.title = `Idle for ${duration(gap.to - gap.from)}`;
      scale.append(mark);
    }
  }

  /**
   * A drag over the ruler goes closer, a double click goes back; the wheel with Ctrl goes to the pointer.
   *
   * @param {HTMLElement | null} ruler
   */
  #zoomable(ruler) {
    if (!ruler) return;
    const at = (/** @type {MouseEvent} */ event) => {
      const box = ruler.getBoundingClientRect();
      return Math.max(0, Math.min(1, (event.clientX - box.left) / Math.max(1, box.width)));
    };
    ruler.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      ruler.setPointerCapture(event.pointerId);
      const begin = at(event);
      const mark = document.createElement("span");
      mark.className = "tree-zoom";
      ruler.append(mark);
      const move = (/** @type {PointerEvent} */ moved) => {
        mark.style.setProperty("--at", String(Math.min(begin, at(moved))));
        mark.style.setProperty("--share", String(Math.abs(at(moved) - begin)));
      };
      ruler.addEventListener("pointermove", move);
      ruler.addEventListener(
        "pointerup",
        (ended) => {
          ruler.removeEventListener("pointermove", move);
          mark.remove();
          if (Math.abs(at(ended) - begin) < 0.01) return;
          this.#scale.zoom(this.#scale.time(begin), this.#scale.time(at(ended)));
          this.#renew();
        },
        { once: true },
      );
    });
    ruler.addEventListener("dblclick", () => {
      this.#scale.whole();
      this.#renew();
    });
    this.#scroll.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey || !this.#isWaterfall) return;
        event.preventDefault();
        const { from, to } = this.#scale.window;
        const middle = this.#scale.time(at(event));
        const by = event.deltaY > 0 ? 1.25 : 0.8;
        this.#scale.zoom(middle - (middle - from) * by, middle + (to - middle) * by);
        this.#renew();
      },
      { passive: false },
    );
  }

  #nextError() {
    const runs = this.#runs;
    const next = runs.find((run) => run.index > this.#selected && run.status === "error") ?? runs.find((run) => run.status === "error");
    if (!next) return;
    for (let at = next.parent; at >= 0; at = runs[at]?.parent ?? -1) this.#folded.delete(at);
    this.#layout();
    this.#choose(next.index);
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
    } else if (event.key === "e") this.#nextError();
    else if (event.key === "w") {
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
      if (!asking.signal.aborted) toast("The run could not be loaded. Try again.", "error");
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
      const words = (/** @type {Run} */ run) => `${run.name} ${run.type} ${run.status} ${run.id}`.toLowerCase();
      const { found, kept } = matching(this.#runs, (run) => words(run).includes(text));
      this.#matches = found;
      this.#kept = kept;
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

/**
 * @param {string} key
 * @param {string} value
 */
function chip(key, value) {
  const made = document.createElement("span");
  made.className = "chip chip-said";
  const name = document.createElement("span");
  name.textContent = key;
  made.append(name, value);
  return made;
}

customElements.define("trace-tree", TraceTree);
