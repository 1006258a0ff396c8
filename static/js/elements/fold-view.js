/**
 * <fold-view><pre>…</pre></fold-view>: shows the beginning of tall content, and a button that shows all of it. Focus or a
 * match of the browser's search within the content shows all of it, too.
 */

const TOLERANCE_PX = 48;

class FoldView extends HTMLElement {
  /** @type {ResizeObserver | undefined} */
  #observer;
  /** @type {HTMLButtonElement | undefined} */
  #button;

  connectedCallback() {
    const content = this.firstElementChild;
    if (!(content instanceof HTMLElement)) return;
    // The height of a hidden tab is measured when the tab is shown.
    this.#observer = new ResizeObserver(() => this.#measure(content));
    this.#observer.observe(content);
    content.addEventListener("focusin", () => this.#setOpen(true));
    content.addEventListener("scroll", () => {
      if (content.scrollTop > 0) this.#setOpen(true);
    });
  }

  disconnectedCallback() {
    this.#observer?.disconnect();
  }

  /** @param {HTMLElement} content */
  #measure(content) {
    if (this.#button || this.hasAttribute("data-open")) return;
    const hiddenHeight = content.scrollHeight - content.clientHeight;
    if (hiddenHeight <= 0) return;
    if (hiddenHeight <= TOLERANCE_PX) {
      this.#setOpen(true);
      return;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fold-button";
    button.addEventListener("click", () => this.#setOpen(!this.hasAttribute("data-open")));
    this.#button = button;
    this.toggleAttribute("data-tall", true);
    this.append(button);
    this.#setOpen(false);
  }

  /** @param {boolean} isOpen */
  #setOpen(isOpen) {
    this.toggleAttribute("data-open", isOpen);
    if (!this.#button) return;
    this.#button.textContent = isOpen ? "Show less" : "Show all";
    this.#button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen && this.firstElementChild) this.firstElementChild.scrollTop = 0;
  }
}
customElements.define("fold-view", FoldView);
