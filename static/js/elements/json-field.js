/**
 * <json-field><textarea>…</textarea><p data-json-error hidden></p></json-field>: states where the text is not valid JSON,
 * and adds a button that indents it. Ctrl+Enter submits the form.
 */
import { createIcon } from "../lib/icons.js";

const CHECK_DELAY_MS = 300;

class JsonField extends HTMLElement {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  connectedCallback() {
    const field = this.#field;
    if (!field || this.dataset.ready !== undefined) return;
    this.dataset.ready = "";
    field.addEventListener("input", this.#checkSoon);
    field.addEventListener("keydown", this.#handleKeydown);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button-quiet button-small json-format";
    button.append(createIcon("align-left"), "Format");
    const label = this.closest(".field")?.querySelector("label") ?? this.querySelector("label");
    button.setAttribute(
      "aria-label",
      `Format: ${label?.firstChild?.textContent?.trim() ?? "JSON"}`,
    );
    button.addEventListener("click", this.#format);
    this.append(button);
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
  }

  get #field() {
    return this.querySelector("textarea");
  }

  #checkSoon = () => {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#parse(), CHECK_DELAY_MS);
  };

  /** Return the value, or undefined for an empty or invalid text; show the problem. */
  #parse() {
    const text = this.#field?.value.trim() ?? "";
    let problem = "";
    /** @type {unknown} */
    let value;
    try {
      value = text ? JSON.parse(text) : undefined;
      if (text && (value === null || typeof value !== "object" || Array.isArray(value)))
        problem = "This must be a JSON object.";
    } catch (error) {
      problem = `Not valid JSON: ${error instanceof Error ? error.message : error}`;
    }
    const output = this.querySelector("[data-json-error]");
    if (output) {
      output.textContent = problem;
      output.toggleAttribute("hidden", !problem);
    }
    return problem ? undefined : value;
  }

  #format = () => {
    const field = this.#field;
    const value = this.#parse();
    // Numbers that JavaScript cannot represent would change.
    if (!field || value === undefined || /\d{16}/.test(field.value)) return;
    field.value = JSON.stringify(value, null, 2);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#field?.form?.requestSubmit();
  };
}
customElements.define("json-field", JsonField);
