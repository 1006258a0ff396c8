/** <theme-toggle><button>…</button></theme-toggle>: cycles through the system, light and dark themes. */
import { setIcon } from "../lib/icons.js";
import { setPreference, getPreference } from "../lib/preferences.js";

/** @type {Record<string, [string, string, string]>} theme: next, icon, label */
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
      setPreference("theme", THEMES[getPreference("theme")]?.[0] ?? "");
      this.#show();
    });
  }

  #show() {
    const [, iconName, label] = THEMES[getPreference("theme")] ?? ["", "monitor", "Theme: system"];
    setIcon(this.querySelector(".icon"), iconName);
    const text = this.querySelector("span");
    if (text) text.textContent = label;
    this.querySelector("button")?.setAttribute("aria-label", label);
  }
}
customElements.define("theme-toggle", ThemeToggle);
