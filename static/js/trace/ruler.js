/** The time ruler of the waterfall: ticks, the marks of folded gaps, and zooming. */
import { formatDuration } from "../lib/formatting.js";
import { createGapMark } from "./row.js";

/** @typedef {import("./scale.js").Scale} Scale */

/**
 * @param {HTMLElement} ruler
 * @param {Scale} scale
 */
export function renderRuler(ruler, scale) {
  ruler.replaceChildren();
  for (const { position, text } of scale.ticks(ruler.clientWidth || undefined)) {
    const tick = document.createElement("span");
    tick.className = "tree-tick";
    tick.style.setProperty("--at", String(position));
    tick.textContent = text;
    ruler.append(tick);
  }
  for (const gap of scale.collapsedGaps) {
    const mark = createGapMark(gap);
    const label = document.createElement("span");
    label.className = "tree-gap-label";
    label.textContent = formatDuration(gap.to - gap.from);
    mark.append(label);
    mark.title = `No run is open for ${formatDuration(gap.to - gap.from)}`;
    ruler.append(mark);
  }
}

/**
 * Bind zooming: drag on the ruler, double click to reset, Ctrl+wheel at the pointer.
 *
 * @param {HTMLElement} ruler
 * @param {HTMLElement} scroll the scrolling element of the rows
 * @param {{ scale: () => Scale, isWaterfall: () => boolean, onZoom: () => void }} tree
 */
export function bindZoom(ruler, scroll, tree) {
  const shareOf = (/** @type {MouseEvent} */ event) => {
    const box = ruler.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / Math.max(1, box.width)));
  };
  ruler.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    ruler.setPointerCapture(event.pointerId);
    const begin = shareOf(event);
    const mark = document.createElement("span");
    mark.className = "tree-zoom";
    ruler.append(mark);
    const move = (/** @type {PointerEvent} */ moved) => {
      mark.style.setProperty("--at", String(Math.min(begin, shareOf(moved))));
      mark.style.setProperty("--share", String(Math.abs(shareOf(moved) - begin)));
    };
    ruler.addEventListener("pointermove", move);
    ruler.addEventListener(
      "pointerup",
      (ended) => {
        ruler.removeEventListener("pointermove", move);
        mark.remove();
        if (Math.abs(shareOf(ended) - begin) < 0.01) return;
        const scale = tree.scale();
        scale.zoom(scale.timeAt(begin), scale.timeAt(shareOf(ended)));
        tree.onZoom();
      },
      { once: true },
    );
  });
  ruler.addEventListener("dblclick", () => {
    tree.scale().reset();
    tree.onZoom();
  });
  scroll.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey || !tree.isWaterfall()) return;
      event.preventDefault();
      const scale = tree.scale();
      const { from, to } = scale.window;
      const middle = scale.timeAt(shareOf(event));
      const by = event.deltaY > 0 ? 1.25 : 0.8;
      scale.zoom(middle - (middle - from) * by, middle + (to - middle) * by);
      tree.onZoom();
    },
    { passive: false },
  );
}
