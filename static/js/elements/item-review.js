/**
 * <item-review>: the keys of the review page. Digits score the first key without a score, Enter ends the review, S skips,
 * the arrows open the items before and after, O opens the trace; Ctrl+Enter ends the review also from a field.
 *
 * The server's answer to a score replaces the rubric. Steps that come before the answer wait for it, fields that are not
 * saved keep their text, and the end of the review saves them first.
 */
import { isShortcut } from "../lib/keyboard.js";

/** What a key clicks. @type {Record<string, string>} */
const TARGETS = {
  Enter: "[data-end-review]",
  s: "[data-skip]",
  o: "[data-open-trace]",
  ArrowLeft: "[data-previous]",
  ArrowRight: "[data-next]",
};
/** The status of a score with an error in its form, which the answer contains. */
const REFUSED = 422;
const FIELDS = ".review-key :is(textarea, input[type=number])";

/** @typedef {HTMLInputElement | HTMLTextAreaElement} Field */

class ItemReview extends HTMLElement {
  /** Scores on their way. @type {Set<XMLHttpRequest>} */
  #requests = new Set();
  /** Steps to take when no score is on its way. @type {(() => void)[]} */
  #steps = [];
  /** Texts of fields that are not saved, by feedback key. @type {Map<string, string>} */
  #drafts = new Map();

  connectedCallback() {
    document.addEventListener("keydown", this.#handleKeydown);
    this.addEventListener("submit", this.#handleSubmit, { capture: true });
    this.addEventListener("htmx:beforeRequest", this.#handleRequest);
    this.addEventListener("htmx:beforeSwap", this.#keepDrafts);
    this.addEventListener("htmx:afterSwap", this.#restoreDrafts);
    this.addEventListener("htmx:afterRequest", this.#handleAnswer);
    this.addEventListener("htmx:afterSettle", this.#handleSettled);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const isEnd = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (event.defaultPrevented || event.repeat) return;
    if (isEnd ? document.querySelector("dialog[open]") : !isShortcut(event)) return;
    if (event.key === "Enter" && !isEnd && !leavesEnter(event)) return;
    // A digit is for the key that is the first without a score when the scores before it are saved.
    if (!/^[1-9]$/.test(event.key) && !this.#findTarget(event.key)) return;
    event.preventDefault();
    this.#take(() => this.#findTarget(event.key)?.click());
  };

  /** @param {string} key */
  #findTarget(key) {
    const target = /^[1-9]$/.test(key)
      ? this.#findScore(Number(key))
      : this.querySelector(TARGETS[key] ?? ":not(*)");
    return target instanceof HTMLElement ? target : null;
  }

  /** @param {number} digit */
  #findScore(digit) {
    const keys = [...this.querySelectorAll(".review-key")].filter((key) =>
      key.querySelector(".segments"),
    );
    const key = keys.find((item) => !item.hasAttribute("data-given")) ?? keys.at(-1);
    return key?.querySelectorAll(".segments button")[digit - 1];
  }

  /** Take the step now, or after the answers to the scores that are on their way. @param {() => void} step */
  #take(step) {
    if (this.#requests.size > 0 || this.#steps.length > 0) this.#steps.push(step);
    else step();
  }

  #handleSubmit = (/** @type {SubmitEvent} */ event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    const isEnd = form.querySelector("[data-end-review]") !== null;
    const isScore = form.matches(".annotate-key");
    if (!isEnd && !isScore && !form.matches(".review-skip")) return;
    if (this.#requests.size > 0) {
      event.preventDefault();
      event.stopPropagation();
      const { submitter } = event;
      this.#steps.push(isScore ? this.#repeatScore(form, submitter) : () => form.requestSubmit());
      return;
    }
    const unsaved = isEnd ? this.#listUnsaved()[0]?.form : null;
    if (!unsaved) return;
    event.preventDefault();
    this.#steps.unshift(() => form.requestSubmit());
    if (unsaved.reportValidity()) unsaved.requestSubmit();
    else this.#steps = [];
  };

  /**
   * The same score in the rubric that replaced the form's.
   *
   * @param {HTMLFormElement} form
   * @param {HTMLElement | null} submitter
   */
  #repeatScore(form, submitter) {
    const key = form.closest(".review-key")?.getAttribute("data-key") ?? "";
    const value = submitter?.getAttribute("value");
    return () => {
      const replaced = this.#findForm(key);
      const buttons = replaced ? [...replaced.querySelectorAll("button")] : [];
      const button = buttons.find((item) => item.getAttribute("value") === value);
      if (button) replaced?.requestSubmit(button);
    };
  }

  /** @param {string} key @returns {HTMLFormElement | null} */
  #findForm(key) {
    return this.querySelector(`.review-key[data-key="${CSS.escape(key)}"] form`);
  }

  /** Fields whose text differs from the saved one; an empty field says nothing. */
  #listUnsaved() {
    const fields = /** @type {Field[]} */ ([...this.querySelectorAll(FIELDS)]);
    return fields.filter((field) => field.value.trim() && field.value !== field.defaultValue);
  }

  #handleRequest = (/** @type {Event} */ event) => {
    if (isScoreRequest(event)) this.#requests.add(detailOf(event).xhr);
  };

  #handleAnswer = (/** @type {Event} */ event) => {
    if (!isScoreRequest(event)) return;
    const { xhr } = detailOf(event);
    if (xhr.status >= 200 && xhr.status < 300) return;
    // What the user did in the belief that the score is saved is dropped if it is not.
    this.#steps = [];
    if (xhr.status !== REFUSED) this.#requests.delete(xhr);
  };

  /** The forms of the new rubric are ready. */
  #handleSettled = (/** @type {Event} */ event) => {
    if (!isScoreRequest(event)) return;
    this.#requests.delete(detailOf(event).xhr);
    while (this.#requests.size === 0 && this.#steps.length > 0) this.#steps.shift()?.();
  };

  #keepDrafts = (/** @type {Event} */ event) => {
    if (!isScoreRequest(event)) return;
    const { xhr, requestConfig } = detailOf(event);
    this.#drafts.clear();
    for (const field of this.#listUnsaved()) {
      // A refused text stays as well, to be corrected.
      if (field.form !== requestConfig.elt || xhr.status === REFUSED)
        this.#drafts.set(field.closest(".review-key")?.getAttribute("data-key") ?? "", field.value);
    }
  };

  /** The event is sent by each inserted element; the first finds all of them in place. */
  #restoreDrafts = () => {
    for (const [key, text] of this.#drafts) {
      const field = /** @type {Field | null | undefined} */ (
        this.#findForm(key)?.querySelector("textarea, input[type=number]")
      );
      if (field) field.value = text;
    }
    this.#drafts.clear();
  };
}

/** Whether Enter is not the focused element's own; a score that is given needs it no more. @param {KeyboardEvent} event */
function leavesEnter(event) {
  const target = /** @type {Element} */ (event.composedPath()[0]);
  return target === document.body || target.matches('.review-key [aria-pressed="true"]');
}

/** @param {Event} event @returns {{ xhr: XMLHttpRequest, requestConfig: { elt: Element } }} */
function detailOf(event) {
  return /** @type {CustomEvent} */ (event).detail;
}

/** @param {Event} event */
function isScoreRequest(event) {
  return detailOf(event).requestConfig.elt.matches(".annotate-key");
}

customElements.define("item-review", ItemReview);
