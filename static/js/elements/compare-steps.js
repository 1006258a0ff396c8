/**
 * <compare-steps><ol>…<a class="compare-step">…</ol></compare-steps>: keys of the comparison of two traces. J and K walk the
 * steps, N and P those that differ, S swaps the traces, O shows only differences.
 */
import { isShortcut } from "../lib/keyboard.js";

class CompareSteps extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#handleKeydown);
    this.addEventListener("click", this.#handleClick);
    // Only within the list, so that the page stays at its head.
    const list = this.querySelector("ol");
    const current = /** @type {HTMLElement | null} */ (this.querySelector("[aria-current]"));
    if (list && current)
      list.scrollTop +=
        current.getBoundingClientRect().bottom - list.getBoundingClientRect().bottom;
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
    this.removeEventListener("click", this.#handleClick);
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const step = /** @type {Element} */ (event.target).closest(".compare-step");
    if (!step) return;
    this.querySelector("[aria-current]")?.removeAttribute("aria-current");
    step.setAttribute("aria-current", "step");
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.shiftKey) return;
    if (event.key === "j" || event.key === "k") this.#move(".compare-step", event.key === "j");
    else if (event.key === "n" || event.key === "p")
      this.#move(".compare-step[data-difference]", event.key === "n");
    else if (event.key === "s" || event.key === "o")
      /** @type {HTMLElement | null} */ (
        document.querySelector(event.key === "s" ? "[data-swap]" : "[data-only]")
      )?.click();
    else return;
    event.preventDefault();
  };

  /**
   * @param {string} selector
   * @param {boolean} isForward
   */
  #move(selector, isForward) {
    const all = [...this.querySelectorAll(".compare-step")];
    const position = all.findIndex((step) => step.hasAttribute("aria-current"));
    const others = isForward
      ? all.slice(position + 1)
      : all.slice(0, Math.max(0, position)).reverse();
    const next = /** @type {HTMLElement | undefined} */ (
      others.find((step) => step.matches(selector))
    );
    next?.scrollIntoView({ block: "nearest" });
    next?.focus({ preventScroll: true });
    next?.click();
  }
}
customElements.define("compare-steps", CompareSteps);
