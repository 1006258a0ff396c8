/** <theme-toggle><button>…</button></theme-toggle>: system → light → dark, remembered. */
import { redraw } from "../lib/icons.js";
import { choose, chosen } from "../lib/preferences.js";

/** @type {Record<string, [string, string, string]>} theme: next, icon, words */
const THEMES = {
  "": ["light", "monitor", "Theme: system"],
  light: ["dark", "sun", "Theme: light"],
  dark: ["", "moon", "Theme: dark"],
};

class ThemeToggle extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.#show();
    this.addEventListener("click", () => {
      choose("theme", THEMES[chosen("theme")]?.[0] ?? "");
      this.#show();
    });
  }

  #show() {
    const [, drawing, words] = THEMES[chosen("theme")] ?? ["", "monitor", "Theme: system"];
    redraw(this.querySelector(".icon"), drawing);
    const text = this.querySelector("span");
    if (text) text.textContent = words;
    this.querySelector("button")?.setAttribute("aria-label", words);
  }
}
customElements.define("theme-toggle", ThemeToggle);
