/**
 * <kept-choice><div>… <label><input type="radio">…</label> …</div></kept-choice>: keeps the checked radio button when htmx
 * replaces the content of the list. A choice that the new list does not contain stays as its first entry.
 */
class KeptChoice extends HTMLElement {
  /** @type {HTMLInputElement | null} */
  #checked = null;

  connectedCallback() {
    this.addEventListener("htmx:beforeSwap", this.#remember);
    this.addEventListener("htmx:afterSwap", this.#restore);
  }

  #remember = () => {
    this.#checked = this.querySelector("input:checked");
  };

  /** The event is sent by each inserted element; the first finds all of them in place. */
  #restore = () => {
    const checked = this.#checked;
    this.#checked = null;
    if (!checked) return;
    for (const input of this.querySelectorAll("input")) {
      if (input.name !== checked.name || input.value !== checked.value) continue;
      input.checked = true;
      return;
    }
    const label = checked.closest("label");
    if (label) this.firstElementChild?.prepend(label);
  };
}
customElements.define("kept-choice", KeptChoice);
