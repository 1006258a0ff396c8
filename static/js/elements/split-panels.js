/**
 * <split-panels class="split-view" name="trace"> panel, [role=separator], panel: the separator is dragged or moved
 * with the arrow keys; a double click resets the width. The width is stored by name.
 */
const MIN_WIDTH = 220;
const STEP = 24;

class SplitPanels extends HTMLElement {
  connectedCallback() {
    this.#restore();
    const handle = this.querySelector('[role="separator"]');
    if (!(handle instanceof HTMLElement)) return;
    handle.addEventListener("pointerdown", (event) => this.#drag(handle, event));
    handle.addEventListener("dblclick", () => this.#setWidth(null));
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (!step) return;
      event.preventDefault();
      this.#setWidth(this.#width + step);
    });
  }

  get #storageKey() {
    return `split:${this.getAttribute("name")}`;
  }

  get #width() {
    return this.firstElementChild?.getBoundingClientRect().width ?? 0;
  }

  #restore() {
    const stored = Number(localStorage.getItem(this.#storageKey));
    if (stored) this.style.setProperty("--split", `${stored}px`);
    this.#updateHandle();
  }

  /**
   * @param {HTMLElement} handle
   * @param {PointerEvent} event
   */
  #drag(handle, event) {
    event.preventDefault();
    handle.setPointerCapture(event.pointerId);
    handle.dataset.dragging = "";
    const move = (/** @type {PointerEvent} */ moved) =>
      this.#setWidth(moved.clientX - this.getBoundingClientRect().left);
    handle.addEventListener("pointermove", move);
    handle.addEventListener(
      "lostpointercapture",
      () => {
        handle.removeEventListener("pointermove", move);
        delete handle.dataset.dragging;
      },
      { once: true },
    );
  }

  /** @param {number | null} width */
  #setWidth(width) {
    if (width === null) {
      this.style.removeProperty("--split");
      localStorage.removeItem(this.#storageKey);
    } else {
      const bounded = Math.round(Math.max(MIN_WIDTH, Math.min(width, this.clientWidth * 0.7)));
      this.style.setProperty("--split", `${bounded}px`);
      localStorage.setItem(this.#storageKey, String(bounded));
    }
    this.#updateHandle();
  }

  #updateHandle() {
    const handle = this.querySelector('[role="separator"]');
    handle?.setAttribute(
      "aria-valuenow",
      String(Math.round((100 * this.#width) / Math.max(1, this.clientWidth))),
    );
  }
}
customElements.define("split-panels", SplitPanels);
