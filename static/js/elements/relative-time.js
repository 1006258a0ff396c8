/** <relative-time><time datetime="…">5 min ago</time></relative-time>: keeps the words true, the exact time in local terms. */
import { ago } from "../lib/figures.js";

/** @type {Set<RelativeTime>} */
const shown = new Set();
setInterval(() => {
  if (document.visibilityState === "visible") for (const element of shown) element.refresh();
}, 15_000);

class RelativeTime extends HTMLElement {
  connectedCallback() {
    shown.add(this);
    const time = this.querySelector("time");
    if (!time) return;
    const local = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    time.title = `${local}\n${time.dateTime}`;
    this.refresh();
  }

  disconnectedCallback() {
    shown.delete(this);
  }

  refresh() {
    const time = this.querySelector("time");
    if (!time) return;
    const words = ago(new Date(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
  }
}
customElements.define("relative-time", RelativeTime);
