/**
 * <chart-grid><form action="/…/arrange" hidden>…</form><div class="charts is-arranged">…</div></chart-grid>: arranges the
 * charts of a dashboard. A cell is
 *
 *   <div class="chart-cell" data-chart="id" data-title="Latency" data-columns="1">
 *     … <button class="chart-move">…</button> <button class="chart-resize"></button>
 *   </div>
 *
 * A drag of `.chart-move` or its arrow keys, Home and End change the order; a drag of `.chart-resize` or its arrow keys
 * change the width in columns. Escape cancels a drag. Each change is sent to the form's URL and announced.
 */
import { showToast } from "../lib/toast.js";

const MAX_COLUMNS = 3;
const DROP_CLASSES = ["is-drop-before", "is-drop-after"];

/** @typedef {{ cell: HTMLElement, target?: HTMLElement, isAfter: boolean, columns: string, isResize: boolean }} Drag */

class ChartGrid extends HTMLElement {
  /** @type {Drag | undefined} */
  #drag;
  #saving = Promise.resolve();
  #status = document.createElement("p");

  connectedCallback() {
    if (!this.#form) return;
    this.#status.className = "visually-hidden";
    this.#status.setAttribute("role", "status");
    this.append(this.#status);
    this.addEventListener("pointerdown", this.#startDrag);
    this.addEventListener("keydown", this.#handleKey);
  }

  disconnectedCallback() {
    this.removeEventListener("pointerdown", this.#startDrag);
    this.removeEventListener("keydown", this.#handleKey);
    this.#endDrag();
  }

  get #form() {
    return this.querySelector("form");
  }

  get #grid() {
    return /** @type {HTMLElement} */ (this.querySelector(".charts"));
  }

  get #cells() {
    return /** @type {HTMLElement[]} */ ([...this.#grid.children]);
  }

  #startDrag = (/** @type {PointerEvent} */ event) => {
    const handle = /** @type {Element} */ (event.target).closest(".chart-move, .chart-resize");
    const cell = /** @type {HTMLElement | null} */ (handle?.closest(".chart-cell") ?? null);
    if (!handle || !cell || event.button !== 0) return;
    event.preventDefault();
    /** @type {HTMLElement} */ (handle).focus();
    this.#drag = {
      cell,
      isAfter: false,
      columns: cell.dataset.columns ?? "1",
      isResize: handle.classList.contains("chart-resize"),
    };
    cell.classList.add("is-dragged");
    document.addEventListener("pointermove", this.#continueDrag);
    document.addEventListener("pointerup", this.#drop);
    document.addEventListener("pointercancel", this.#cancelDrag);
  };

  #continueDrag = (/** @type {PointerEvent} */ event) => {
    if (!this.#drag) return;
    if (this.#drag.isResize) this.#resizeTo(event.clientX);
    else this.#markTarget(event);
  };

  /** @param {PointerEvent} event */
  #markTarget({ clientX, clientY }) {
    const drag = /** @type {Drag} */ (this.#drag);
    const below = document.elementFromPoint(clientX, clientY)?.closest(".chart-cell");
    const target = this.#cells.find((cell) => cell === below && cell !== drag.cell);
    drag.target?.classList.remove(...DROP_CLASSES);
    drag.target = target;
    if (!target) return;
    drag.isAfter = this.#cells.indexOf(drag.cell) < this.#cells.indexOf(target);
    target.classList.add(drag.isAfter ? "is-drop-after" : "is-drop-before");
  }

  /** @param {number} pointer */
  #resizeTo(pointer) {
    const { cell } = /** @type {Drag} */ (this.#drag);
    const style = getComputedStyle(this.#grid);
    const tracks = style.gridTemplateColumns.split(" ").map(parseFloat);
    const gap = parseFloat(style.columnGap) || 0;
    const isRightToLeft = style.direction === "rtl";
    const box = cell.getBoundingClientRect();
    const width = isRightToLeft ? box.right - pointer : pointer - box.left;
    const columns = Math.round((width + gap) / ((tracks[0] ?? width) + gap));
    setColumns(cell, Math.min(columns, tracks.length));
  }

  #drop = () => {
    const drag = this.#drag;
    this.#endDrag();
    if (drag?.isResize) this.#saveWidth(drag.cell, drag.columns);
    else if (drag?.target) {
      const handle = drag.cell.querySelector(".chart-move");
      this.#move(drag.cell, this.#cells.indexOf(drag.target), handle);
    }
  };

  #cancelDrag = () => {
    const drag = this.#drag;
    this.#endDrag();
    if (drag?.isResize) setColumns(drag.cell, Number(drag.columns));
  };

  #endDrag() {
    this.#drag?.cell.classList.remove("is-dragged");
    this.#drag?.target?.classList.remove(...DROP_CLASSES);
    this.#drag = undefined;
    document.removeEventListener("pointermove", this.#continueDrag);
    document.removeEventListener("pointerup", this.#drop);
    document.removeEventListener("pointercancel", this.#cancelDrag);
  }

  #handleKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && this.#drag) {
      event.preventDefault();
      this.#cancelDrag();
      return;
    }
    const handle = /** @type {Element} */ (event.target).closest(".chart-move, .chart-resize");
    const cell = /** @type {HTMLElement | null} */ (handle?.closest(".chart-cell") ?? null);
    if (!handle || !cell || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (handle.classList.contains("chart-resize")) {
      if (!step) return;
      const previous = cell.dataset.columns ?? "1";
      setColumns(cell, Number(previous) + step);
      this.#saveWidth(cell, previous);
    } else {
      const last = this.#cells.length - 1;
      const position = this.#cells.indexOf(cell);
      const target = event.key === "Home" ? 0 : event.key === "End" ? last : position + (step ?? 0);
      if (!step && target === position && !["Home", "End"].includes(event.key)) return;
      this.#move(cell, Math.max(0, Math.min(last, target)), handle);
    }
    event.preventDefault();
  };

  /**
   * Move the cell to a position and save; the focus stays on the handle.
   *
   * @param {HTMLElement} cell
   * @param {number} position
   * @param {Element | null} handle
   */
  #move(cell, position, handle) {
    const cells = this.#cells;
    const from = cells.indexOf(cell);
    const place = (/** @type {number} */ index) => {
      const others = this.#cells.filter((other) => other !== cell);
      this.#grid.insertBefore(cell, others[index] ?? null);
    };
    if (position !== from) {
      place(position);
      this.#save(() => place(from));
    }
    /** @type {HTMLElement | null} */ (handle)?.focus();
    this.#status.textContent = `${cell.dataset.title}: position ${position + 1} of ${cells.length}`;
  }

  /**
   * @param {HTMLElement} cell
   * @param {string} previous
   */
  #saveWidth(cell, previous) {
    const columns = cell.dataset.columns;
    this.#status.textContent = `${cell.dataset.title}: ${columns} of ${MAX_COLUMNS} columns wide`;
    if (columns !== previous) this.#save(() => setColumns(cell, Number(previous)));
  }

  /**
   * Send the arrangement after earlier ones; call `undo` if it is rejected.
   *
   * @param {() => void} undo
   */
  #save(undo) {
    const form = /** @type {HTMLFormElement} */ (this.#form);
    const body = new FormData(form);
    for (const { dataset } of this.#cells) {
      body.append("chart", dataset.chart ?? "");
      body.append("columns", dataset.columns ?? "1");
    }
    this.#saving = this.#saving.then(async () => {
      const response = await fetch(form.action, { method: "POST", body }).catch(() => undefined);
      if (response?.ok) return;
      undo();
      showToast("The arrangement was not saved. Reload the page and try again.", "error");
    });
  }
}

/**
 * @param {HTMLElement} cell
 * @param {number} columns
 */
function setColumns(cell, columns) {
  const text = String(Math.max(1, Math.min(MAX_COLUMNS, columns)));
  cell.dataset.columns = text;
  cell
    .querySelector(".chart-resize")
    ?.setAttribute(
      "aria-label",
      `Width of ${cell.dataset.title}: ${text} of ${MAX_COLUMNS} columns`,
    );
}

customElements.define("chart-grid", ChartGrid);
