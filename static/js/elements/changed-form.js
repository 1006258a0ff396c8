/** <changed-form><form>…<select>…<button>Set</button></form></changed-form>: the button shows once a choice differs. */
class ChangedForm extends HTMLElement {
  connectedCallback() {
    this.addEventListener("input", this.#look);
    this.#look();
  }

  #look = () => {
    const options = [...this.querySelectorAll("option")];
    const differs = options.some((option) => option.selected !== option.defaultSelected);
    this.querySelector("button")?.toggleAttribute("data-idle", !differs);
  };
}
customElements.define("changed-form", ChangedForm);
