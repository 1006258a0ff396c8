/** <modal-dialog><dialog>…</dialog></modal-dialog>: opens the dialog when it is inserted and removes it when it closes. */
class ModalDialog extends HTMLElement {
  connectedCallback() {
    const dialog = this.querySelector("dialog");
    if (!dialog || dialog.open) return;
    dialog.showModal();
    dialog.addEventListener("close", () => this.remove());
    this.querySelector("[data-close]")?.addEventListener("click", () => dialog.close());
  }
}
customElements.define("modal-dialog", ModalDialog);
