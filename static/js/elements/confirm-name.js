/**
 * <confirm-name name="support"><button type="button">Delete…</button><dialog>…<input><button>…</confirm-name>:
 * opens the dialog and enables its submit button when the name is typed. Without JavaScript the server checks the name.
 */
class ConfirmName extends HTMLElement {
  connectedCallback() {
    const dialog = this.querySelector("dialog");
    this.querySelector("[data-open]")?.addEventListener("click", () => dialog?.showModal());
    this.querySelector("[data-close]")?.addEventListener("click", () => dialog?.close());
    const field = dialog?.querySelector("input[type=text]");
    const submit = /** @type {HTMLButtonElement | null | undefined} */ (
      dialog?.querySelector("button[type=submit]")
    );
    if (!(field instanceof HTMLInputElement) || !submit) return;
    submit.disabled = true;
    field.addEventListener("input", () => {
      submit.disabled = field.value !== this.getAttribute("name");
    });
  }
}
customElements.define("confirm-name", ConfirmName);
