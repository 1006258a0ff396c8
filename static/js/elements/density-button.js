/** <density-button hidden><button>…</button></density-button>: dense or comfortable rows, remembered; D does the same. */
import { choose, chosen } from "../lib/preferences.js";

class DensityButton extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", () => choose("density", chosen("density") ? "" : "compact"));
  }
}
customElements.define("density-button", DensityButton);
