/**
 * <query-bar main language="id" views="id" recents="project" values="/…/values"><input name="query"></query-bar>: marks the
 * clauses of the query, names faults while typing, and suggests fields, operators and values.
 *
 * Arrow keys select, Tab or Enter accepts, Escape closes the list; Shift+Enter opens the list in a new tab. Backspace
 * behind a clause selects it.
 */
import { isShortcut } from "../lib/keyboard.js";
import { findFault, splitQuery } from "../lib/query-language.js";

/** @typedef {import("../lib/query-language.js").QueryLanguage} QueryLanguage */
/** @typedef {import("../lib/query-language.js").QueryFault} QueryFault */
/** @typedef {{ title?: string, text: string, note?: string, insert?: string, url?: string, isWhole?: boolean }} Suggestion */

const MAX_SUGGESTIONS = 12;
const MAX_RECENTS = 20;
const CHECK_DELAY = 150;
const ORDERED = new Set(["duration", "number", "money", "time", "mixed"]);
const NUMBERS = new Set(["latency", "first_token", "tokens", "tokens.in", "tokens.out", "cost"]);
let instanceCount = 0;

class QueryBar extends HTMLElement {
  /** @type {QueryLanguage} */
  #language = { fields: [], others: [] };
  /** @type {Suggestion[]} */
  #suggestions = [];
  #selectedIndex = -1;
  #replaceRange = { from: 0, to: 0 };
  /** @type {Map<string, Promise<Suggestion[]>>} */
  #values = new Map();
  #list = document.createElement("ul");
  #mirror = document.createElement("div");
  #message = document.createElement("p");
  /** @type {QueryFault | null} */
  #fault = null;
  /** The query that was submitted in spite of a fault, so that the server decides. */
  #rejected = "";
  #timer = 0;

  connectedCallback() {
    this.#language = readJson(this.getAttribute("language")) ?? this.#language;
    this.#list.className = "suggestions";
    this.#list.id = `suggestions-${++instanceCount}`;
    this.#list.setAttribute("role", "listbox");
    this.#list.setAttribute("aria-label", "Suggestions");
    this.#list.hidden = true;
    this.#mirror.className = "query-mirror";
    this.#mirror.setAttribute("aria-hidden", "true");
    this.#message.className = "query-fault";
    this.#message.id = `${this.#list.id}-fault`;
    this.#message.setAttribute("role", "status");
    this.prepend(this.#mirror);
    this.append(this.#list, this.#message);
    const input = this.#input;
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-controls", this.#list.id);
    input.setAttribute("aria-expanded", "false");
    input.setAttribute("aria-autocomplete", "list");
    input.addEventListener("input", this.#handleInput);
    input.addEventListener("click", () => this.#suggest());
    input.addEventListener("focus", () => this.#suggest());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("scroll", () => this.#scrollMirror());
    input.addEventListener("keydown", this.#handleKeydown);
    input.form?.addEventListener("submit", this.#handleSubmit);
    document.addEventListener("keydown", this.#handleShortcut);
    document.addEventListener("click", this.#handleExclude);
    this.#list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const item = /** @type {HTMLElement | null} */ (
        /** @type {Element} */ (event.target).closest("[role=option]")
      );
      if (item) this.#accept(Number(item.dataset.index));
    });
    this.#renderMirror();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleShortcut);
    document.removeEventListener("click", this.#handleExclude);
    clearTimeout(this.#timer);
  }

  get #input() {
    return /** @type {HTMLInputElement} */ (this.querySelector("input"));
  }

  get #recentsKey() {
    return `slipway-queries:${this.getAttribute("recents") ?? ""}`;
  }

  #handleInput = () => {
    this.#renderMirror();
    this.#suggest();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const input = this.#input;
      this.#showFault(findFault(input.value, this.#language, input.selectionStart ?? -1));
    }, CHECK_DELAY);
  };

  #handleShortcut = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "v" || !isShortcut(event) || !this.hasAttribute("main")) return;
    /** @type {HTMLElement | null} */ (document.querySelector(".views-menu > summary"))?.click();
  };

  /** Alt+click on a value of a facet excludes it. */
  #handleExclude = (/** @type {MouseEvent} */ event) => {
    const link = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (event.target).closest("a[data-exclude]")
    );
    if (!event.altKey || !link) return;
    event.preventDefault();
    location.assign(link.dataset.exclude ?? "");
  };

  #handleSubmit = (/** @type {SubmitEvent} */ event) => {
    const input = this.#input;
    const fault = findFault(input.value, this.#language, -1);
    if (fault && this.#rejected !== input.value) {
      event.preventDefault();
      this.#rejected = input.value;
      this.#showFault(fault);
      input.focus();
      input.setSelectionRange(fault.start, fault.end);
      this.#close();
      return;
    }
    this.#remember(input.value.trim());
  };

  /** @param {string} query */
  #remember(query) {
    if (!query || !this.hasAttribute("main")) return;
    const recents = [query, ...this.#recents().filter((other) => other !== query)];
    try {
      localStorage.setItem(this.#recentsKey, JSON.stringify(recents.slice(0, MAX_RECENTS)));
    } catch {
      // The browser stores nothing for this page.
    }
  }

  /** @returns {string[]} */
  #recents() {
    try {
      const stored = JSON.parse(localStorage.getItem(this.#recentsKey) ?? "[]");
      return Array.isArray(stored) ? stored.filter((item) => typeof item === "string") : [];
    } catch {
      return [];
    }
  }

  /** @param {QueryFault | null} fault */
  #showFault(fault) {
    this.#fault = fault;
    this.#input.toggleAttribute("aria-invalid", Boolean(fault));
    if (fault) {
      this.#input.setAttribute("aria-invalid", "true");
      this.#input.setAttribute("aria-describedby", this.#message.id);
    } else this.#input.removeAttribute("aria-describedby");
    this.#message.textContent = fault?.message ?? "";
    if (fault?.meant) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Use ${fault.meant}`;
      button.addEventListener("click", () => this.#fix(fault));
      this.#message.append(" ", button);
    }
    this.#renderMirror();
  }

  /** @param {QueryFault} fault */
  #fix(fault) {
    const input = this.#input;
    input.setRangeText(fault.meant, fault.start, fault.end, "end");
    input.focus();
    this.#handleInput();
  }

  /** Draw the clauses behind the text of the field. */
  #renderMirror() {
    const text = this.#input.value;
    const line = document.createElement("div");
    let position = 0;
    const add = (/** @type {number} */ end, /** @type {string} */ classes) => {
      const piece = document.createElement("span");
      piece.textContent = text.slice(position, end);
      piece.className = classes;
      line.append(piece);
      position = end;
    };
    for (const token of splitQuery(text)) {
      add(token.start, "");
      const isChip = token.field || token.isNegative || /^["(]/.test(text.slice(token.start));
      const fault = this.#fault;
      const hasFault = fault !== null && fault.start < token.end && fault.end > token.start;
      const classes = [isChip ? "is-clause" : "", token.isNegative ? "is-negative" : ""];
      if (hasFault) classes.push("is-fault");
      add(token.end, classes.filter(Boolean).join(" "));
    }
    this.#mirror.replaceChildren(line);
    this.#scrollMirror();
  }

  #scrollMirror() {
    this.#mirror.scrollLeft = this.#input.scrollLeft;
  }

  async #suggest() {
    const input = this.#input;
    const caret = input.selectionStart ?? input.value.length;
    const text = input.value;
    const token = splitQuery(text).find(({ start, end }) => start < caret && caret <= end);
    if (!token) {
      this.#replaceRange = { from: caret, to: caret };
      this.#render(text.trim() ? this.#fieldSuggestions("") : this.#emptySuggestions());
      return;
    }
    const isInValue = token.field && caret >= token.valueStart;
    if (!isInValue) {
      const from = token.start + Number(token.isNegative);
      const typed = text.slice(from, caret);
      this.#replaceRange = { from, to: token.end };
      const keys = typed.length > 1 ? await this.#keySuggestions() : [];
      if (input.value !== text || input.selectionStart !== caret) return;
      this.#render(this.#fieldSuggestions(typed, keys));
      return;
    }
    const typed = text.slice(token.valueStart, caret);
    const from = caret - (/[^\s(]*$/.exec(typed)?.[0].length ?? 0);
    this.#replaceRange = { from, to: caret };
    const values = await this.#fetchValues(token.field);
    if (input.value !== text || input.selectionStart !== caret) return;
    this.#render(this.#valueSuggestions(token.field, text.slice(from, caret), values));
  }

  /** Suggest recent queries, saved views, and a few fields. */
  #emptySuggestions() {
    const recents = this.hasAttribute("main") ? this.#recents().slice(0, 5) : [];
    /** @type {{ name: string, url: string }[]} */
    const views = this.hasAttribute("main") ? readJson(this.getAttribute("views")) || [] : [];
    return [
      ...withTitle(
        "Recent",
        recents.map((query) => ({ text: query, insert: query, isWhole: true })),
      ),
      ...withTitle(
        "Saved views",
        views.slice(0, 5).map(({ name, url }) => ({ text: name, url })),
      ),
      ...withTitle("Fields", this.#fieldSuggestions("").slice(0, 6)),
    ];
  }

  /**
   * @param {string} typed
   * @param {Suggestion[]} keys
   * @returns {Suggestion[]}
   */
  #fieldSuggestions(typed, keys = []) {
    const word = typed.toLowerCase();
    const fields = this.#language.fields.map(({ name, example, about }) => ({
      text: `${name}:${example}`,
      name,
      note: about,
      insert: `${name}:`,
    }));
    const matching = fields.filter(({ name }) => name.includes(word));
    matching.sort((a, b) => Number(b.name.startsWith(word)) - Number(a.name.startsWith(word)));
    const others = word ? keys.filter(({ text }) => text.toLowerCase().includes(word)) : [];
    const search = word ? [{ text: typed, note: `Search for “${typed}”`, insert: typed }] : [];
    return [...matching.slice(0, MAX_SUGGESTIONS - 4), ...others.slice(0, 3), ...search];
  }

  /**
   * @param {string} name
   * @param {string} typed
   * @param {Suggestion[]} fetched
   * @returns {Suggestion[]}
   */
  #valueSuggestions(name, typed, fetched) {
    const field = this.#language.fields.find((item) => item.name === name);
    const isOrdered = ORDERED.has(field?.kind ?? "mixed");
    /** @type {Suggestion[]} */
    const operators = [];
    if (!typed && isOrdered && field?.kind !== "mixed")
      operators.push(
        { text: ">", note: `more than, as in ${name}:${field?.example || ">5"}`, insert: ">" },
        { text: "<", note: "less than", insert: "<" },
      );
    if (!typed) operators.push({ text: "*", note: "has any value", insert: "*" });
    const known = fetched.length || !field ? [] : field.values.map((value) => ({ text: value }));
    const word = typed.replace(/^["~=!]+/, "").toLowerCase();
    const values = [...fetched, ...known].filter(
      ({ text }) => text.toLowerCase().includes(word) && text !== typed,
    );
    const inserted = values.map((value) => ({ ...value, insert: `${value.text} ` }));
    return NUMBERS.has(name)
      ? [...inserted, ...operators]
      : [...inserted.slice(0, 9), ...operators];
  }

  /** @returns {Promise<Suggestion[]>} the metadata and feedback keys of the listed runs */
  async #keySuggestions() {
    const groups = await Promise.all(
      ["metadata.", "feedback."].map((name) => this.#fetchValues(name)),
    );
    return groups.flat().map((key) => ({ ...key, insert: key.text }));
  }

  /**
   * @param {string} field
   * @returns {Promise<Suggestion[]>}
   */
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
    this.#suggestions = suggestions.filter(({ title }) => title === undefined);
    this.#selectedIndex = -1;
    let index = 0;
    this.#list.replaceChildren(
      ...suggestions.map((suggestion) => {
        const item = document.createElement("li");
        if (suggestion.title !== undefined) {
          item.setAttribute("role", "presentation");
          item.textContent = suggestion.title;
          return item;
        }
        item.id = `${this.#list.id}-${index}`;
        item.dataset.index = String(index++);
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        const name = document.createElement("code");
        name.textContent = suggestion.text;
        const note = document.createElement("span");
        note.textContent = suggestion.note ?? "";
        item.append(name, note);
        return item;
      }),
    );
    const isOpen = this.#suggestions.length > 0 && document.activeElement === this.#input;
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
    const isOpen = !this.#list.hidden;
    if (event.key === "Escape" && isOpen) {
      // A search field would be emptied.
      event.preventDefault();
      event.stopPropagation();
      this.#close();
    } else if (event.key === "Escape") event.preventDefault();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = this.#suggestions.length;
      if (!isOpen) this.#suggest();
      else
        this.#select((this.#selectedIndex + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      this.#openInNewTab();
    } else if (
      (event.key === "Enter" || event.key === "Tab") &&
      isOpen &&
      this.#selectedIndex >= 0
    ) {
      event.preventDefault();
      this.#accept(this.#selectedIndex);
    } else if (event.key === "Backspace") this.#selectClause(event);
  };

  /** @param {KeyboardEvent} event */
  #selectClause(event) {
    const input = this.#input;
    const caret = input.selectionStart ?? 0;
    if (caret !== input.selectionEnd || caret === 0 || input.value[caret - 1] !== " ") return;
    const token = splitQuery(input.value).find(({ end, field }) => end === caret - 1 && field);
    if (!token) return;
    event.preventDefault();
    input.setSelectionRange(token.start, caret);
  }

  #openInNewTab() {
    const form = this.#input.form;
    if (!form) return;
    const values = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(values.map(([name, value]) => [name, String(value)]));
    window.open(`${location.pathname}?${query}`, "_blank", "noopener");
  }

  /** @param {number} selectedIndex */
  #select(selectedIndex) {
    this.#selectedIndex = selectedIndex;
    const items = this.#list.querySelectorAll("[role=option]");
    items.forEach((item, index) =>
      item.setAttribute("aria-selected", String(index === selectedIndex)),
    );
    const item = items[selectedIndex];
    item?.scrollIntoView({ block: "nearest" });
    if (item) this.#input.setAttribute("aria-activedescendant", item.id);
  }

  /** @param {number} index */
  #accept(index) {
    const suggestion = this.#suggestions[index];
    if (!suggestion) return;
    if (suggestion.url) {
      location.assign(suggestion.url);
      return;
    }
    const input = this.#input;
    if (suggestion.isWhole) {
      input.value = suggestion.text;
      this.#renderMirror();
      input.form?.requestSubmit();
      return;
    }
    const { from, to } = this.#replaceRange;
    input.setRangeText(suggestion.insert ?? suggestion.text, from, to, "end");
    input.focus();
    if (suggestion.note?.startsWith("Search for")) this.#close();
    else this.#handleInput();
  }
}

/**
 * @param {string} title
 * @param {Suggestion[]} suggestions
 * @returns {Suggestion[]}
 */
function withTitle(title, suggestions) {
  return suggestions.length ? [{ title, text: "" }, ...suggestions] : [];
}

/** @param {string | null} id */
function readJson(id) {
  const text = document.getElementById(id ?? "")?.textContent;
  return text ? JSON.parse(text) : null;
}

customElements.define("query-bar", QueryBar);
