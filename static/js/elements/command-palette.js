/**
 * <command-palette src="…/find"><button>…</button></command-palette>: Ctrl or Cmd + K over everything that has an
 * address. The server finds (`src?q=…` answers options); arrows choose, Enter goes.
 */
import { icon } from "../lib/icons.js";

const PAUSE = 90;

class CommandPalette extends HTMLElement {
  /** @type {HTMLDialogElement | undefined} */
  #dialog;
  /** @type {AbortController | undefined} */
  #asking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", this.#click);
    document.addEventListener("keydown", this.#shortcut);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#shortcut);
  }

  #click = (/** @type {Event} */ event) => {
    if (!this.#dialog?.contains(/** @type {Node} */ (event.target))) this.#open();
  };

  #shortcut = (/** @type {KeyboardEvent} */ event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (this.#dialog?.open) this.#dialog.close();
    else this.#open();
  };

  #open() {
    this.#dialog ??= this.#build();
    if (this.#dialog.open) return;
    this.#dialog.showModal();
    this.#input.select();
    this.#ask();
  }

  get #input() {
    return /** @type {HTMLInputElement} */ (this.#dialog?.querySelector("input"));
  }

  get #results() {
    return /** @type {HTMLElement} */ (this.#dialog?.querySelector(".palette-results"));
  }

  get #options() {
    return /** @type {HTMLAnchorElement[]} */ ([...this.#results.querySelectorAll('[role="option"]')]);
  }

  #build() {
    const dialog = document.createElement("dialog");
    dialog.className = "dialog palette";
    dialog.setAttribute("aria-label", "Command palette");
    dialog.innerHTML = `
      <div class="palette-field"><input type="text" role="combobox" aria-expanded="true" aria-autocomplete="list"
        aria-controls="palette-results" aria-label="Name or run ID" placeholder="Project, deployment or run ID"
        autocomplete="off" spellcheck="false"></div>
      <div class="palette-results" id="palette-results" role="listbox" aria-label="Results"></div>
      <div class="palette-foot"><span><kbd>↑</kbd><kbd>↓</kbd> select</span><span><kbd>↵</kbd> open</span><span><kbd>Esc</kbd> close</span></div>`;
    dialog.querySelector(".palette-field")?.prepend(icon("search"));
    dialog.addEventListener("keydown", (event) => this.#key(event));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.querySelector("input")?.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#ask(), PAUSE);
    });
    this.append(dialog);
    return dialog;
  }

  async #ask() {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    try {
      const query = new URLSearchParams({ q: this.#input.value });
      const answer = await fetch(`${this.getAttribute("src")}?${query}`, {
        signal: asking.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      if (!answer.ok) throw new Error(String(answer.status));
      this.#results.innerHTML = await answer.text();
      this.#choose(0);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.#results.innerHTML = '<p class="palette-none">The server does not respond. Try again.</p>';
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const options = this.#options;
    const at = options.findIndex((option) => option.ariaSelected === "true");
    if (event.key === "ArrowDown") this.#choose((at + 1) % options.length);
    else if (event.key === "ArrowUp") this.#choose((at - 1 + options.length) % options.length);
    else if (event.key === "Enter" && options[at]) options[at].click();
    else return;
    event.preventDefault();
  }

  /** @param {number} index */
  #choose(index) {
    this.#options.forEach((option, at) => {
      option.ariaSelected = String(at === index);
      if (at === index) option.scrollIntoView({ block: "nearest" });
    });
    const chosen = this.#options[index];
    if (chosen) this.#input.setAttribute("aria-activedescendant", chosen.id);
    else this.#input.removeAttribute("aria-activedescendant");
  }
}
customElements.define("command-palette", CommandPalette);
