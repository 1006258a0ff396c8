/**
 * <new-rows src="…/new?after=…">: asks now and then how many rows came since the page was made, and offers them.
 * Nothing moves until the person asks; a hidden page does not ask.
 */
const EVERY = 4000;

class NewRows extends HTMLElement {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  connectedCallback() {
    this.#timer = setInterval(this.#look, EVERY);
    document.addEventListener("visibilitychange", this.#look);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    document.removeEventListener("visibilitychange", this.#look);
  }

  #look = async () => {
    if (document.visibilityState !== "visible") return;
    const src = this.getAttribute("src") ?? "";
    try {
      const answer = await fetch(src, { headers: { "HX-Request": "true", Accept: "text/html" } });
      if (answer.status === 204 || !answer.ok) return;
      this.innerHTML = await answer.text();
    } catch {
      // The next look may succeed; the table is right as of its own time.
    }
  };
}
customElements.define("new-rows", NewRows);
