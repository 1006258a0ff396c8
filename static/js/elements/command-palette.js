/**
 * <command-palette src="…/search"><button>…</button></command-palette>: opens the palette on Ctrl+K or Cmd+K. The server
 * searches (`src?q=…` returns options); arrow keys select, Enter opens.
 */
import { createIcon } from "../lib/icons.js";

const DEBOUNCE_MS = 90;

class CommandPalette extends HTMLElement {
  /** @type {HTMLDialogElement | undefined} */
  #dialog;
  /** @type {AbortController | undefined} */
  #abortController;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#handleClick);
    document.addEventListener("keydown", this.#handleShortcut);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleShortcut);
  }

  #handleClick = (/** @type {Event} */ event) => {
    if (!this.#dialog?.contains(/** @type {Node} */ (event.target))) this.#open();
  };

  #handleShortcut = (/** @type {KeyboardEvent} */ event) => {
    if (
      event.key.toLowerCase() !== "k" ||
      !(event.ctrlKey || event.metaKey) ||
      event.shiftKey ||
      event.altKey
    )
      return;
    event.preventDefault();
    if (this.#dialog?.open) this.#dialog.close();
    else this.#open();
  };

  #open() {
    this.#dialog ??= this.#buildDialog();
    if (this.#dialog.open) return;
    this.#dialog.showModal();
    this.#input.select();
    this.#search();
  }

  get #input() {
    return /** @type {HTMLInputElement} */ (this.#dialog?.querySelector("input"));
  }

  get #results() {
    return /** @type {HTMLElement} */ (this.#dialog?.querySelector(".palette-results"));
  }

  get #options() {
    return /** @type {HTMLAnchorElement[]} */ ([
      ...this.#results.querySelectorAll('[role="option"]'),
    ]);
  }

  #buildDialog() {
    const dialog = document.createElement("dialog");
    dialog.className = "dialog palette";
    dialog.setAttribute("aria-label", "Command palette");
    dialog.innerHTML = `
      <div class="palette-field"><input type="text" role="combobox" aria-expanded="true" aria-autocomplete="list"
        aria-controls="palette-results" aria-label="Name or run ID" placeholder="Project, page, action, run or thread ID"
        autocomplete="off" spellcheck="false"></div>
      <div class="palette-results" id="palette-results" role="listbox" aria-label="Results"></div>
      <div class="palette-foot"><span><kbd>↑</kbd><kbd>↓</kbd> select</span><span><kbd>↵</kbd> open</span><span><kbd>Esc</kbd> close</span></div>`;
    dialog.querySelector(".palette-field")?.prepend(createIcon("search"));
    dialog.addEventListener("keydown", (event) => this.#handleKeydown(event));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.querySelector("input")?.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#search(), DEBOUNCE_MS);
    });
    this.append(dialog);
    return dialog;
  }

  async #search() {
    this.#abortController?.abort();
    const abortController = (this.#abortController = new AbortController());
    try {
      const query = new URLSearchParams({ q: this.#input.value });
      const response = await fetch(`${this.getAttribute("src")}?${query}`, {
        signal: abortController.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      if (!response.ok) throw new Error(String(response.status));
      this.#results.innerHTML = await response.text();
      this.#select(0);
    } catch {
      if (abortController.signal.aborted) return;
      this.#results.innerHTML =
        '<p class="palette-empty">The server does not respond. Try again.</p>';
    }
  }

  /** @param {KeyboardEvent} event */
  #handleKeydown(event) {
    const options = this.#options;
    const index = options.findIndex((option) => option.ariaSelected === "true");
    if (event.key === "ArrowDown") this.#select((index + 1) % options.length);
    else if (event.key === "ArrowUp") this.#select((index - 1 + options.length) % options.length);
    else if (event.key === "Enter" && options[index]) options[index].click();
    else return;
    event.preventDefault();
  }

  /** @param {number} index */
  #select(index) {
    this.#options.forEach((option, position) => {
      option.ariaSelected = String(position === index);
      if (position === index) option.scrollIntoView({ block: "nearest" });
    });
    const selected = this.#options[index];
    if (selected) this.#input.setAttribute("aria-activedescendant", selected.id);
    else this.#input.removeAttribute("aria-activedescendant");
  }
}
customElements.define("command-palette", CommandPalette);
