/**
 * <split-panels class="workbench" name="trace"> panel, [role=separator], panel: the separator is dragged, or moved
 * with the arrow keys; a double click returns to the usual width. The width is remembered by name.
 */
const LEAST = 220;
const STEP = 24;

class SplitPanels extends HTMLElement {
  connectedCallback() {
    this.#restore();
    const handle = this.querySelector('[role="separator"]');
    if (!(handle instanceof HTMLElement)) return;
    handle.addEventListener("pointerdown", (event) => this.#drag(handle, event));
    handle.addEventListener("dblclick", () => this.#set(null));
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (!step) return;
      event.preventDefault();
      this.#set(this.#width + step);
    });
  }

  get #key() {
    return `split:${this.getAttribute("name")}`;
  }

  get #width() {
    return this.firstElementChild?.getBoundingClientRect().width ?? 0;
  }

  #restore() {
    const kept = Number(localStorage.getItem(this.#key));
    if (kept) this.style.setProperty("--split", `${kept}px`);
    this.#tell();
  }

  /**
   * @param {HTMLElement} handle
   * @param {PointerEvent} event
   */
  #drag(handle, event) {
    event.preventDefault();
    handle.setPointerCapture(event.pointerId);
    handle.dataset.dragging = "";
    const move = (/** @type {PointerEvent} */ moved) => this.#set(moved.clientX - this.getBoundingClientRect().left);
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
  #set(width) {
    if (width === null) {
      this.style.removeProperty("--split");
      localStorage.removeItem(this.#key);
    } else {
      const bounded = Math.round(Math.max(LEAST, Math.min(width, this.clientWidth * 0.7)));
      this.style.setProperty("--split", `${bounded}px`);
      localStorage.setItem(this.#key, String(bounded));
    }
    this.#tell();
  }

  #tell() {
    const handle = this.querySelector('[role="separator"]');
    handle?.setAttribute("aria-valuenow", String(Math.round((100 * this.#width) / Math.max(1, this.clientWidth))));
  }
}
customElements.define("split-panels", SplitPanels);
