/**
 * <item-review>: the keys of the review page. Digits score the first key without a score, Enter ends the review, S skips,
 * the arrows open the items before and after, O opens the trace.
 */
import { isShortcut } from "../lib/keyboard.js";

/** What a key clicks. @type {Record<string, string>} */
const TARGETS = {
  Enter: "[data-done]",
  s: "[data-skip]",
  o: "[data-open-trace]",
  ArrowLeft: "[data-previous]",
  ArrowRight: "[data-next]",
};

class ItemReview extends HTMLElement {
  connectedCallback() {
    document.addEventListener("keydown", this.#handleKeydown);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.defaultPrevented) return;
    // Enter on a focused button or link is that element's own.
    if (event.key === "Enter" && event.composedPath()[0] !== document.body) return;
    const target = /^[1-9]$/.test(event.key)
      ? this.#findScore(Number(event.key))
      : this.querySelector(TARGETS[event.key] ?? ":not(*)");
    if (!(target instanceof HTMLElement)) return;
    event.preventDefault();
    target.click();
  };

  /** @param {number} digit */
  #findScore(digit) {
    const keys = [...this.querySelectorAll(".review-key")].filter((key) =>
      key.querySelector(".segments"),
    );
    const key = keys.find((item) => !item.hasAttribute("data-given")) ?? keys.at(-1);
    return key?.querySelectorAll(".segments button")[digit - 1];
  }
}
customElements.define("item-review", ItemReview);
