/**
 * <first-run action="…" placeholder="<your key>">…</first-run>: makes a key on the first Copy of a snippet, fills it and
 * the project's name into the snippets, and names the first run in the title of the page.
 */
import { showToast } from "../lib/toast.js";

class FirstRun extends HTMLElement {
  /** @type {Map<string, Promise<string>>} */
  #keys = new Map();

  connectedCallback() {
    // Before the button copies the text.
    this.addEventListener("click", this.#handleClick, { capture: true });
    this.addEventListener("input", this.#handleInput);
    this.addEventListener("htmx:afterSwap", this.#handleArrival);
  }

  disconnectedCallback() {
    this.removeEventListener("click", this.#handleClick, { capture: true });
    this.removeEventListener("input", this.#handleInput);
    this.removeEventListener("htmx:afterSwap", this.#handleArrival);
  }

  #handleClick = async (/** @type {MouseEvent} */ event) => {
    const button = /** @type {Element} */ (event.target).closest("copy-button button");
    const figure = /** @type {HTMLElement | null} */ (button?.closest("[data-purpose]") ?? null);
    if (!(button instanceof HTMLButtonElement) || !figure) return;
    const placeholder = this.getAttribute("placeholder") ?? "";
    const slots = [...figure.querySelectorAll("[data-slot=key]")];
    if (!slots.some((slot) => slot.textContent === placeholder)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    button.disabled = true;
    try {
      const purpose = figure.dataset.purpose ?? "";
      this.#fill(purpose, await this.#requestKey(purpose));
    } catch (error) {
      showToast(/** @type {Error} */ (error).message, "error");
      return;
    } finally {
      button.disabled = false;
    }
    button.click();
  };

  /**
   * Return the key for a purpose, which is made once.
   *
   * @param {string} purpose
   */
  #requestKey(purpose) {
    let key = this.#keys.get(purpose);
    if (!key) {
      key = this.#createKey(purpose);
      this.#keys.set(purpose, key);
      key.catch(() => this.#keys.delete(purpose));
    }
    return key;
  }

  /** @param {string} purpose */
  async #createKey(purpose) {
    const token = /** @type {HTMLInputElement | null} */ (
      this.querySelector("[name=csrfmiddlewaretoken]")
    );
    const response = await fetch(this.getAttribute("action") ?? "", {
      method: "POST",
      headers: { Accept: "application/json", "X-CSRFToken": token?.value ?? "" },
      body: new URLSearchParams({ purpose }),
    }).catch(() => null);
    const body = await response?.json().catch(() => null);
    if (!response?.ok || !body?.key)
      throw new Error(body?.detail ?? "The key could not be created. Try again.");
    return /** @type {string} */ (body.key);
  }

  /**
   * @param {string} purpose
   * @param {string} key
   */
  #fill(purpose, key) {
    for (const slot of this.querySelectorAll(`[data-purpose="${purpose}"] [data-slot=key]`))
      slot.textContent = key;
    const note = this.querySelector(`[data-key-note="${purpose}"]`);
    if (note?.firstChild)
      note.firstChild.textContent = "The commands have your key now. It is shown once. ";
  }

  #handleInput = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.name !== "project") return;
    const name = field.value.replace(/[^\p{L}\p{N}_ .-]+/gu, "").trim() || field.defaultValue;
    for (const slot of this.querySelectorAll("[data-slot=project]")) slot.textContent = name;
  };

  #handleArrival = () => {
    if (!this.querySelector("[data-arrived]") || document.title.startsWith("●")) return;
    document.title = `● 1 run · ${document.title}`;
  };
}
customElements.define("first-run", FirstRun);
