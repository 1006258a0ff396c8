/**
 * <filter-input language="id" values="/…/values"><input name="filter"></filter-input>: suggests fields, operators and
 * values of the filter language at the caret. Arrow keys select, Tab or Enter accepts, Escape closes the list.
 */
import { parseCaretContext } from "../lib/filter-caret.js";

/** @typedef {{ text: string, note: string, insert: string }} Suggestion */
/** @typedef {{ name: string, about: string, operators: string[] }} Field */

const MAX_SUGGESTIONS = 9;
let instanceCount = 0;

class FilterInput extends HTMLElement {
  /** @type {Field[]} */
  #fields = [];
  /** @type {string[]} */
  #calls = [];
  /** @type {Suggestion[]} */
  #suggestions = [];
  #selectedIndex = -1;
  /** @type {{ from: number, to: number }} */
  #replaceRange = { from: 0, to: 0 };
  /** @type {Map<string, Promise<string[]>>} */
  #values = new Map();
  #list = document.createElement("ul");

  connectedCallback() {
    const text = document.getElementById(this.getAttribute("language") ?? "")?.textContent ?? "{}";
    const language = JSON.parse(text);
    this.#fields = language.fields ?? [];
    this.#calls = language.calls ?? [];
    this.#list.className = "suggestions";
    this.#list.id = `suggestions-${++instanceCount}`;
    this.#list.setAttribute("role", "listbox");
    this.#list.setAttribute("aria-label", "Suggestions");
    this.#list.hidden = true;
    this.append(this.#list);
    const input = this.#input;
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-controls", this.#list.id);
    input.setAttribute("aria-expanded", "false");
    input.setAttribute("aria-autocomplete", "list");
    input.addEventListener("input", () => this.#suggest());
    input.addEventListener("click", () => this.#suggest());
    input.addEventListener("focus", () => this.#suggest());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("keydown", this.#handleKeydown);
    this.#list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const item = /** @type {Element} */ (event.target).closest("[role=option]");
      if (item) this.#accept(Number(/** @type {HTMLElement} */ (item).dataset.index));
    });
  }

  get #input() {
    return /** @type {HTMLInputElement} */ (this.querySelector("input"));
  }

  async #suggest() {
    const input = this.#input;
    const caret = input.selectionStart ?? input.value.length;
    const context = parseCaretContext(input.value, caret);
    this.#replaceRange = { from: context.from, to: caret };
    const typed = context.typed.toLowerCase();
    /** @type {Suggestion[]} */
    let candidates = [];
    if (context.kind === "call") candidates = this.#clauseSuggestions();
    else if (context.kind === "field") candidates = this.#fieldSuggestions(context.call);
    else if (context.kind === "value") {
      const values = await this.#fetchValues(context.field);
      if (input.selectionStart !== caret) return;
      candidates = values.map((value) => ({
        text: value,
        note: "",
        insert: JSON.stringify(value),
      }));
    }
    const matching = candidates.filter(
      (candidate) =>
        candidate.text.toLowerCase().includes(typed) && candidate.insert !== context.typed,
    );
    matching.sort(
      (a, b) =>
        Number(b.text.toLowerCase().startsWith(typed)) -
        Number(a.text.toLowerCase().startsWith(typed)),
    );
    this.#render(matching.slice(0, MAX_SUGGESTIONS));
  }

  /** Suggest each field with its default operator, then the calls. */
  #clauseSuggestions() {
    const fields = this.#fields.map(({ name, about, operators }) => {
      const operator = operators[0] ?? "eq";
      return { text: name, note: about, insert: `${operator}(${name}, ` };
    });
    const operators = [...new Set(this.#fields.flatMap((field) => field.operators))];
    const calls = [...this.#calls, ...operators].map((name) => ({
      text: `${name}(`,
      note: NOTES[name] ?? "",
      insert: `${name}(`,
    }));
    return [...fields, ...calls];
  }

  /** @param {string} call */
  #fieldSuggestions(call) {
    return this.#fields
      .filter((field) => field.operators.includes(call))
      .map(({ name, about }) => ({ text: name, note: about, insert: `${name}, ` }));
  }

  /** @param {string} field */
  #fetchValues(field) {
    let values = this.#values.get(field);
    if (!values) {
      const url = new URL(this.getAttribute("values") ?? "", location.href);
      url.searchParams.set("field", field);
      values = fetch(url, { headers: { Accept: "application/json" } })
        .then((response) => (response.ok ? response.json() : { values: [] }))
        .then((body) => body.values)
        .catch(() => []);
      this.#values.set(field, values);
    }
    return values;
  }

  /** @param {Suggestion[]} suggestions */
  #render(suggestions) {
    this.#suggestions = suggestions;
    this.#selectedIndex = -1;
    this.#list.replaceChildren(
      ...suggestions.map((suggestion, index) => {
        const item = document.createElement("li");
        item.id = `${this.#list.id}-${index}`;
        item.dataset.index = String(index);
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        const name = document.createElement("code");
        name.textContent = suggestion.text;
        const note = document.createElement("span");
        note.textContent = suggestion.note;
        item.append(name, note);
        return item;
      }),
    );
    const isOpen = suggestions.length > 0 && document.activeElement === this.#input;
    this.#list.hidden = !isOpen;
    this.#input.setAttribute("aria-expanded", String(isOpen));
    this.#input.removeAttribute("aria-activedescendant");
  }

  #close() {
    this.#list.hidden = true;
    this.#selectedIndex = -1;
    this.#input.setAttribute("aria-expanded", "false");
    this.#input.removeAttribute("aria-activedescendant");
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && !this.#list.hidden) {
      event.preventDefault();
      this.#close();
      return;
    }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.#list.hidden) this.#suggest();
      else
        this.#select(
          (this.#selectedIndex + (event.key === "ArrowDown" ? 1 : -1) + this.#suggestions.length) %
            this.#suggestions.length,
        );
    } else if (
      (event.key === "Enter" || event.key === "Tab") &&
      !this.#list.hidden &&
      this.#selectedIndex >= 0
    ) {
      event.preventDefault();
      this.#accept(this.#selectedIndex);
    }
  };

  /** @param {number} selectedIndex */
  #select(selectedIndex) {
    this.#selectedIndex = selectedIndex;
    [...this.#list.children].forEach((item, index) =>
      item.setAttribute("aria-selected", String(index === selectedIndex)),
    );
    const item = this.#list.children[selectedIndex];
    item?.scrollIntoView({ block: "nearest" });
    if (item) this.#input.setAttribute("aria-activedescendant", item.id);
  }

  /** @param {number} index */
  #accept(index) {
    const suggestion = this.#suggestions[index];
    if (!suggestion) return;
    const input = this.#input;
    input.setRangeText(suggestion.insert, this.#replaceRange.from, this.#replaceRange.to, "end");
    input.focus();
    this.#suggest();
  }
}

/** @type {Record<string, string>} */
const NOTES = {
  and: "all conditions match",
  or: "any condition matches",
  not: "negates a condition",
  search: "contains these words",
  eq: "is",
  neq: "is not",
  gt: "greater than",
  gte: "at least",
  lt: "less than",
  lte: "at most",
  in: "is one of a list",
  has: "contains",
  like: "matches % and _",
  exists: "key exists",
};

customElements.define("filter-input", FilterInput);
