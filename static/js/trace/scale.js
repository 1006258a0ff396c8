/** Maps times of a trace to positions on the waterfall: a zoomable window in which idle gaps may be folded. */
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
    // Multiples of the step, because sums of it would drift.
    for (let n = Math.ceil(from / step); n * step < to && ticks.length < 400; n++) {
      const time = n * step;
      const gap = this.collapsedGaps.find((interval) => time > interval.from && time < interval.to);
      if (gap) {
        n = Math.floor(gap.to / step);
        continue;
      }
      const position = this.position(time);
      if (position > 1 - minDistance / 2 || position - last < minDistance) continue;
      last = position;
      ticks.push({ position, text: formatTick(time, step, to) });
    }
    return ticks;
  }
}

/**
 * Format the time of a tick in the unit of the window, with the digits that tell it from the next tick.
 *
 * @param {number} time milliseconds
 * @param {number} step milliseconds between two ticks
 * @param {number} end of the window, in milliseconds
 */
function formatTick(time, step, end) {
  if (time === 0) return "0";
  if (end < 1000) return `${time.toFixed(decimals(step))} ms`;
  const digits = decimals(step / 1000);
  if (end < 120_000) return `${(time / 1000).toFixed(digits)} s`;
  const minutes = Math.floor(time / 60_000);
  const seconds = ((time % 60_000) / 1000).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  if (minutes < 60) return `${minutes}:${seconds}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${seconds}`;
}

/** @param {number} step */
function decimals(step) {
  return Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
}

/**
 * Return the intervals in which no run of the trace was open.
 *
 * @param {{ start: number, duration: number | null }[]} runs a run without duration is still open
 * @param {number} total
 */
export function findIdleGaps(runs, total) {
  const open = runs.map(({ start, duration }) => ({
    from: start,
    to: duration === null ? total : start + duration,
  }));
  open.sort((a, b) => a.from - b.from);
  const gaps = [];
  let end = 0;
  for (const interval of open) {
    if (interval.from > end) gaps.push({ from: end, to: interval.from });
    end = Math.max(end, interval.to);
  }
  return gaps;
}
