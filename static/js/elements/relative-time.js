/**
 * <relative-time><time datetime="…">5 min ago</time></relative-time>: keeps the relative time current and shows the
 * exact time in the page's time zone on hover. With `elapsed` it counts the seconds since that time.
 */
import { formatDuration, formatRelativeTime } from "../lib/formatting.js";
import { formatExactTime } from "../lib/time-zone.js";

/** @type {Set<RelativeTime>} */
const instances = new Set();
setInterval(() => {
  if (document.visibilityState === "visible") for (const element of instances) element.refresh();
}, 15_000);
setInterval(() => {
  for (const element of instances) if (element.hasAttribute("elapsed")) element.refresh();
}, 1000);

class RelativeTime extends HTMLElement {
  connectedCallback() {
    instances.add(this);
    const time = this.querySelector("time");
    if (!time) return;
    time.title = formatExactTime(new Date(time.dateTime));
    this.refresh();
  }

  disconnectedCallback() {
    instances.delete(this);
  }

  refresh() {
    const time = this.querySelector("time");
    if (!time) return;
    const timestamp = new Date(time.dateTime);
    const text = this.hasAttribute("elapsed")
      ? formatDuration(
          Math.max(1000, Math.floor((Date.now() - timestamp.getTime()) / 1000) * 1000),
        ).replace(".00", "")
      : formatRelativeTime(timestamp);
    if (time.textContent !== text) time.textContent = text;
  }
}
customElements.define("relative-time", RelativeTime);
