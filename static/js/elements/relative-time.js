/**
 * <relative-time><time datetime="…">5 min ago</time></relative-time>: keeps the words true, the exact time in local
 * terms on hover. With `elapsed` it counts the time since then, by the second.
 */
import { ago, duration } from "../lib/figures.js";

/** @type {Set<RelativeTime>} */
const shown = new Set();
setInterval(() => {
  if (document.visibilityState === "visible") for (const element of shown) element.refresh();
}, 15_000);
setInterval(() => {
  for (const element of shown) if (element.hasAttribute("elapsed")) element.refresh();
}, 1000);

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
    const moment = new Date(time.dateTime);
    const words = this.hasAttribute("elapsed")
      ? duration(Math.max(1000, Math.floor((Date.now() - moment.getTime()) / 1000) * 1000)).replace(".00", "")
      : ago(moment);
    if (time.textContent !== words) time.textContent = words;
  }
}
customElements.define("relative-time", RelativeTime);
