/**
 * <nav-drawer><a href="#nav">…</a></nav-drawer>: on a narrow screen the navigation opens as the target of a
 * link, without JavaScript. This element traps focus in it, closes it on Escape and keeps it out of the history.
 */
class NavDrawer extends HTMLElement {
  connectedCallback() {
    this.addEventListener("click", this.#open);
    document.addEventListener("keydown", this.#handleKeydown);
    for (const link of document.querySelectorAll(".nav-close, .nav-backdrop"))
      link.addEventListener("click", this.#close);
    addEventListener("hashchange", this.#sync);
    this.#sync();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
    removeEventListener("hashchange", this.#sync);
  }

  #open = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.replace("#nav");
  };

  #close = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.replace("#");
    history.replaceState(history.state, "", location.pathname + location.search);
    this.#sync();
    this.querySelector("a")?.focus();
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && location.hash === "#nav") this.#close(event);
  };

  #sync = () => {
    const open = location.hash === "#nav";
    const body = document.querySelector(".app-content");
    if (body instanceof HTMLElement) body.inert = open;
    if (open) /** @type {HTMLElement | null} */ (document.querySelector(".nav-close"))?.focus();
  };
}
customElements.define("nav-drawer", NavDrawer);
