/** <modal-dialog><dialog>…</dialog></modal-dialog>: opens as soon as it is there, and is gone when it closes. */
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
