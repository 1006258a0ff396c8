/**
 * Maps times of a trace to positions on the waterfall: a zoomable window in which idle gaps are collapsed.
 */
import { formatDuration } from "../lib/formatting.js";

const COLLAPSED_GAP_SHARE = 0.025;
const MIN_GAP_SHARE = 0.12;
const MIN_WINDOW_MS = 1;

/** @typedef {{ from: number, to: number }} Interval */

export class Scale {
  /** @type {Interval} */
  window;
  /** @type {Interval[]} */
  gaps = [];
  /** @type {{ time: number, position: number }[]} */
  #knots = [];

  /** @param {number} total milliseconds */
  constructor(total) {
    this.total = Math.max(total, 0.001);
    this.window = { from: 0, to: this.total };
    this.#computeKnots([]);
  }

  get isFullRange() {
    return this.window.from === 0 && this.window.to === this.total;
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  zoom(from, to) {
    const low = Math.max(0, Math.min(from, to));
    const high = Math.min(this.total, Math.max(from, to));
    if (high - low < MIN_WINDOW_MS && this.total > MIN_WINDOW_MS) return;
    this.window = { from: low, to: high };
    this.#computeKnots(this.gaps);
  }

  reset() {
    this.window = { from: 0, to: this.total };
    this.#computeKnots(this.gaps);
  }

  /** @param {Interval[]} gaps */
  setGaps(gaps) {
    this.gaps = gaps;
    this.#computeKnots(gaps);
  }

  /** @param {Interval[]} gaps */
  #computeKnots(gaps) {
    const { from, to } = this.window;
    const width = to - from;
    const visibleGaps = gaps
      .map((gap) => ({ from: Math.max(gap.from, from), to: Math.min(gap.to, to) }))
      .filter((gap) => gap.to - gap.from > width * MIN_GAP_SHARE);
    const remaining = visibleGaps.reduce((sum, gap) => sum - (gap.to - gap.from), width);
    const share = 1 - visibleGaps.length * COLLAPSED_GAP_SHARE;
    this.#knots = [{ time: from, position: 0 }];
    let time = from;
    let position = 0;
    for (const gap of visibleGaps) {
      position += ((gap.from - time) / Math.max(remaining, 1e-9)) * share;
      this.#knots.push({ time: gap.from, position });
      position += COLLAPSED_GAP_SHARE;
      this.#knots.push({ time: gap.to, position });
      time = gap.to;
    }
    this.#knots.push({ time: to, position: 1 });
    this.collapsedGaps = visibleGaps.map((gap) => ({
      ...gap,
      position: this.position(gap.from),
      width: COLLAPSED_GAP_SHARE,
    }));
  }

  /** @type {(Interval & { position: number, width: number })[]} */
  collapsedGaps = [];

  /**
   * @param {number} time
   * @returns {number} 0 at the start of the window, 1 at its end
   */
  position(time) {
    const knots = this.#knots;
    const first = /** @type {{ time: number, position: number }} */ (knots[0]);
    if (time <= first.time) return 0;
    for (let n = 1; n < knots.length; n++) {
      const low = /** @type {{ time: number, position: number }} */ (knots[n - 1]);
      const high = /** @type {{ time: number, position: number }} */ (knots[n]);
      if (time <= high.time)
        return (
          low.position +
          ((time - low.time) / Math.max(high.time - low.time, 1e-9)) *
            (high.position - low.position)
        );
    }
    return 1;
  }

  /** @param {number} position */
  timeAt(position) {
    const knots = this.#knots;
    for (let n = 1; n < knots.length; n++) {
      const low = /** @type {{ time: number, position: number }} */ (knots[n - 1]);
      const high = /** @type {{ time: number, position: number }} */ (knots[n]);
      if (position <= high.position)
        return (
          low.time +
          ((position - low.position) / Math.max(high.position - low.position, 1e-9)) *
            (high.time - low.time)
        );
    }
    return this.window.to;
  }

  /**
   * Return round tick times for the ruler, limited by its width.
   *
   * @param {number} [width] of the ruler, in pixels
   */
  ticks(width = 560) {
    const minDistance = Math.max(0.1, 64 / width);
    const { from, to } = this.window;
    const shown = this.collapsedGaps.reduce((sum, gap) => sum - (gap.to - gap.from), to - from);
    const minStep = shown / Math.max(1, Math.min(5, width / 72));
    const power = 10 ** Math.floor(Math.log10(minStep));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= minStep) ?? minStep;
    const ticks = [];
    let last = -1;
    for (let time = Math.ceil(from / step) * step; time < to && ticks.length < 400; time += step) {
      const gap = this.collapsedGaps.find((interval) => time > interval.from && time < interval.to);
      if (gap) {
        time = Math.floor(gap.to / step) * step;
        continue;
      }
      const position = this.position(time);
      if (position > 1 - minDistance / 2 || position - last < minDistance) continue;
      last = position;
      ticks.push({ position, text: time === 0 ? "0" : formatDuration(time) });
    }
    return ticks;
  }
}

/**
 * Return the intervals in which no leaf run was active.
 *
 * @param {{ start: number, subtreeEnd: number, childCount: number }[]} runs
 * @param {number} total
 */
export function findIdleGaps(runs, total) {
  const active = runs
    .filter((run) => !run.childCount)
    .map((run) => ({ from: run.start, to: run.subtreeEnd }));
  active.sort((a, b) => a.from - b.from);
  const gaps = [];
  let end = 0;
  for (const interval of active) {
    if (interval.from > end) gaps.push({ from: end, to: interval.from });
    end = Math.max(end, interval.to);
  }
  if (end < total) gaps.push({ from: end, to: total });
  return gaps;
}
