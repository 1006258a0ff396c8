/** <dirty-form><form>…<select>…<button>Set</button></form></dirty-form>: shows the button while a select differs from its saved value. */
class DirtyForm extends HTMLElement {
  connectedCallback() {
    this.addEventListener("input", this.#updateButton);
    this.#updateButton();
  }

  #updateButton = () => {
    const options = [...this.querySelectorAll("option")];
    const isChanged = options.some((option) => option.selected !== option.defaultSelected);
    this.querySelector("button")?.toggleAttribute("data-idle", !isChanged);
  };
}
customElements.define("dirty-form", DirtyForm);
