/** <facets-toggle hidden><button aria-expanded>…</button></facets-toggle>: shows or hides the filters of the list; shortcut F. */
import { ToggleButton } from "../lib/toggle-button.js";
import { setPreference, getPreference } from "../lib/preferences.js";

class FacetsToggle extends ToggleButton {
  shortcut = "f";

  toggle() {
    const isCollapsed = !getPreference("facets");
    setPreference("facets", isCollapsed ? "collapsed" : "");
    return isCollapsed;
  }
}
customElements.define("facets-toggle", FacetsToggle);
