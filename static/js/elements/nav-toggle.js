/** <nav-toggle><button>…</button></nav-toggle>: collapses the navigation to icons; shortcut `[`. */
import { ToggleButton } from "../lib/toggle-button.js";
import { setIcon } from "../lib/icons.js";
import { setPreference, getPreference } from "../lib/preferences.js";

class NavToggle extends ToggleButton {
  shortcut = "[";

  toggle() {
    const isCollapsed = getPreference("nav") !== "rail";
    setPreference("nav", isCollapsed ? "rail" : "");
    setIcon(this.querySelector(".icon"), isCollapsed ? "panel-left-open" : "panel-left-close");
    return isCollapsed;
  }
}
customElements.define("nav-toggle", NavToggle);
