/**
 * From the time in a trace to the place on a waterfall's scale: a window that can be zoomed, and stretches in which
 * nothing ran folded to a narrow mark.
 */
import { duration } from "../lib/figures.js";

const FOLDED_SHARE = 0.025;
const LEAST_GAP = 0.12;
const NARROWEST = 1;

/** @typedef {{ from: number, to: number }} Span */

export class Scale {
  /** @type {Span} */
  window;
  /** @type {Span[]} */
  gaps = [];
  /** @type {{ at: number, place: number }[]} */
  #knots = [];

  /** @param {number} total milliseconds */
  constructor(total) {
    this.total = Math.max(total, 0.001);
    this.window = { from: 0, to: this.total };
    this.#knit([]);
  }

  get isWhole() {
    return this.window.from === 0 && this.window.to === this.total;
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  zoom(from, to) {
    const low = Math.max(0, Math.min(from, to));
    const high = Math.min(this.total, Math.max(from, to));
    if (high - low < NARROWEST && this.total > NARROWEST) return;
    this.window = { from: low, to: high };
    this.#knit(this.gaps);
  }

  whole() {
    this.window = { from: 0, to: this.total };
    this.#knit(this.gaps);
  }

  /** @param {Span[]} gaps */
  fold(gaps) {
    this.gaps = gaps;
    this.#knit(gaps);
  }

  /** @param {Span[]} gaps */
  #knit(gaps) {
    const { from, to } = this.window;
    const width = to - from;
    const inside = gaps
      .map((gap) => ({ from: Math.max(gap.from, from), to: Math.min(gap.to, to) }))
      .filter((gap) => gap.to - gap.from > width * LEAST_GAP);
    const left = inside.reduce((sum, gap) => sum - (gap.to - gap.from), width);
    const share = 1 - inside.length * FOLDED_SHARE;
    this.#knots = [{ at: from, place: 0 }];
    let at = from;
    let place = 0;
    for (const gap of inside) {
      place += ((gap.from - at) / Math.max(left, 1e-9)) * share;
      this.#knots.push({ at: gap.from, place });
      place += FOLDED_SHARE;
      this.#knots.push({ at: gap.to, place });
      at = gap.to;
    }
    this.#knots.push({ at: to, place: 1 });
    this.folded = inside.map((gap) => ({ ...gap, place: this.place(gap.from), width: FOLDED_SHARE }));
  }

  /** @type {(Span & { place: number, width: number })[]} */
  folded = [];

  /**
   * @param {number} time
   * @returns {number} 0 at the window's beginning, 1 at its end
   */
  place(time) {
    const knots = this.#knots;
    const first = /** @type {{ at: number, place: number }} */ (knots[0]);
    if (time <= first.at) return 0;
    for (let n = 1; n < knots.length; n++) {
      const low = /** @type {{ at: number, place: number }} */ (knots[n - 1]);
      const high = /** @type {{ at: number, place: number }} */ (knots[n]);
      if (time <= high.at) return low.place + ((time - low.at) / Math.max(high.at - low.at, 1e-9)) * (high.place - low.place);
    }
    return 1;
  }

  /** @param {number} place */
  time(place) {
    const knots = this.#knots;
    for (let n = 1; n < knots.length; n++) {
      const low = /** @type {{ at: number, place: number }} */ (knots[n - 1]);
      const high = /** @type {{ at: number, place: number }} */ (knots[n]);
      if (place <= high.place) return low.at + ((place - low.place) / Math.max(high.place - low.place, 1e-9)) * (high.at - low.at);
    }
    return this.window.to;
  }

  /**
   * Round moments for the ruler, as many as have room.
   *
   * @param {number} [width] of the ruler, in pixels
   */
  ticks(width = 560) {
    const apart = Math.max(0.1, 64 / width);
    const { from, to } = this.window;
    const shown = this.folded.reduce((sum, gap) => sum - (gap.to - gap.from), to - from);
    const rough = shown / Math.max(1, Math.min(5, width / 72));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
    const ticks = [];
    let last = -1;
    for (let at = Math.ceil(from / step) * step; at < to && ticks.length < 400; at += step) {
      const gap = this.folded.find((one) => at > one.from && at < one.to);
      if (gap) {
        at = Math.floor(gap.to / step) * step;
        continue;
      }
      const place = this.place(at);
      if (place > 1 - apart / 2 || place - last < apart) continue;
      last = place;
      ticks.push({ place, text: at === 0 ? "0" : duration(at) });
    }
    return ticks;
  }
}

/**
 * The stretches in which no run without children was at work.
 *
 * @param {{ from: number, last: number, below: number }[]} runs
 * @param {number} total
 */
export function idle(runs, total) {
  const busy = runs.filter((run) => !run.below).map((run) => ({ from: run.from, to: run.last }));
  busy.sort((a, b) => a.from - b.from);
  const gaps = [];
  let until = 0;
  for (const one of busy) {
    if (one.from > until) gaps.push({ from: until, to: one.from });
    until = Math.max(until, one.to);
  }
  if (until < total) gaps.push({ from: until, to: total });
  return gaps;
}
