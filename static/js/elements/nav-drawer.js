/**
 * <nav-drawer><a href="#nav">…</a></nav-drawer>: on a narrow screen the navigation is the target of a link, which
 * needs no script; this keeps focus in it, lets Escape close it, and leaves no trace in the history.
 */
class NavDrawer extends HTMLElement {
  connectedCallback() {
    this.addEventListener("click", this.#open);
    document.addEventListener("keydown", this.#key);
    for (const link of document.querySelectorAll(".nav-close, .nav-scrim")) link.addEventListener("click", this.#close);
    addEventListener("hashchange", this.#sync);
    this.#sync();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#key);
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

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && location.hash === "#nav") this.#close(event);
  };

  #sync = () => {
    const open = location.hash === "#nav";
    const body = document.querySelector(".shell-body");
    if (body instanceof HTMLElement) body.inert = open;
    if (open) /** @type {HTMLElement | null} */ (document.querySelector(".nav-close"))?.focus();
  };
}
customElements.define("nav-drawer", NavDrawer);
