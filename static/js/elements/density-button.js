/** <density-button hidden><button>…</button></density-button>: toggles compact and comfortable rows. */
import { setPreference, getPreference } from "../lib/preferences.js";

class DensityButton extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", () =>
      setPreference("density", getPreference("density") ? "" : "compact"),
    );
  }
}
customElements.define("density-button", DensityButton);
