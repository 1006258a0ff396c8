/** Builds the row of a run for `<trace-tree>` from the row template. */
import { formatChartValue } from "../lib/chart-units.js";
import { formatCompact, formatDuration } from "../lib/formatting.js";
import { setIcon } from "../lib/icons.js";

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./scale.js").Scale} Scale */

const MAX_SCORES = 3;
/** The marks of the row template, and the statuses that show them. */
const MARKS = [
  ["error", "error"],
  ["interrupted", "interrupted"],
  ["cancelled", "cancelled"],
  ["no-end", "no_end"],
  ["running", "pending"],
];

/**
 * @param {HTMLTemplateElement} template
 * @param {Run} run
 * @param {{ scale: Scale, base: string, icons: Record<string, string> }} tree
 */
export function createRow(template, run, { scale, base, icons }) {
  const row = /** @type {HTMLAnchorElement} */ (
    template.content.firstElementChild?.cloneNode(true)
  );
  row.id = `row-${run.id}`;
  row.href = `${base}${run.id}`;
  row.dataset.index = String(run.index);
  row.style.setProperty("--depth", String(run.depth));
  row.setAttribute("aria-level", String(run.depth + 1));
  if (run.status === "error") row.classList.add("is-error");
  const type = /** @type {HTMLElement} */ (row.querySelector(".run-type"));
  type.dataset.type = run.type;
  type.title = run.type;
  setIcon(type.querySelector(".icon"), icons[run.type] ?? "circle");
  fillText(row, run);
  const scores = row.querySelector("[data-scores]");
  for (const [key, value] of run.feedback.slice(0, MAX_SCORES))
    scores?.append(createChip(key, value));
  for (const [mark, status] of MARKS)
    row.querySelector(`[data-${mark}]`)?.toggleAttribute("hidden", run.status !== status);
  fillTrack(row, run, scale);
  return row;
}

/**
 * @param {Element} row
 * @param {Run} run
 */
function fillText(row, run) {
  fillSlot(row, "type", run.type);
  fillSlot(row, "name", run.name);
  const openText = run.status === "no_end" ? "no end" : "running";
  fillSlot(row, "duration", run.duration === null ? openText : formatDuration(run.duration));
  const subtreeDuration = run.subtreeEnd - run.start;
  const hasLongerSubtree = run.duration !== null && subtreeDuration > run.duration * 1.01 + 1;
  fillSlot(row, "subtree-duration", hasLongerSubtree ? `Σ ${formatDuration(subtreeDuration)}` : "");
  const tokens = run.tokensIn || run.tokensOut;
  fillSlot(
    row,
    "tokens",
    tokens ? `${formatCompact(run.tokensIn ?? 0)} → ${formatCompact(run.tokensOut ?? 0)} tok` : "",
  );
  fillSlot(row, "cost", run.cost ? formatChartValue("usd", run.cost) : "");
}

/**
 * @param {HTMLElement} row
 * @param {Run} run
 * @param {Scale} scale
 */
function fillTrack(row, run, scale) {
  const duration = run.duration ?? Math.max(0, scale.total - run.start);
  row.style.setProperty("--trace-share", String(Math.min(1, duration / scale.total)));
  const from = scale.position(run.start);
  const to = scale.position(run.start + duration);
  const track = /** @type {HTMLElement} */ (row.querySelector(".tree-track"));
  track.style.setProperty("--from", String(from));
  track.style.setProperty("--share", String(to - from));
  const isOutsideWindow = run.start > scale.window.to || run.start + duration < scale.window.from;
  track.toggleAttribute("data-outside", isOutsideWindow);
  const first = /** @type {HTMLElement} */ (row.querySelector(".tree-first-token"));
  first.hidden = run.firstToken === null || isOutsideWindow;
  if (run.firstToken !== null) {
    first.style.setProperty("--at", String(scale.position(run.start + run.firstToken)));
    first.title = `First token after ${formatDuration(run.firstToken)}`;
  }
  const label = /** @type {HTMLElement} */ (row.querySelector(".tree-bar-label"));
  label.textContent = formatDuration(run.duration);
  label.classList.toggle("is-before", to > 0.85 && from >= 0.15);
  label.classList.toggle("is-inside", to > 0.85 && from < 0.15);
  for (const gap of scale.collapsedGaps) track.append(createGapMark(gap));
}

/**
 * Marks time that the scale leaves out.
 *
 * @param {{ position: number, width: number }} gap
 */
export function createGapMark(gap) {
  const mark = document.createElement("span");
  mark.className = "tree-gap";
  mark.style.setProperty("--at", String(gap.position));
  mark.style.setProperty("--share", String(gap.width));
  return mark;
}

/**
 * @param {Element} row
 * @param {string} slot
 * @param {string} text
 */
function fillSlot(row, slot, text) {
  const target = row.querySelector(`[data-slot="${slot}"]`);
  if (target) target.textContent = text;
}

/**
 * @param {string} key
 * @param {string} value
 */
function createChip(key, value) {
  const chip = document.createElement("span");
  chip.className = "chip chip-pair";
  const name = document.createElement("span");
  name.textContent = key;
  chip.append(name, value);
  return chip;
}
