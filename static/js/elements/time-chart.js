/**
 * <time-chart class="chart" for="id" [zoom="?range="]>: figures over time out of a `json_script`:
 *
 *   { step, unit, kind: "line" | "bars" | "stack", times: [seconds], series: [{ name, hue, values, href? }] }
 *
 * The pointer reads all series at one moment, names in the legend switch their lines, a drag goes to that time, and a
 * click on a moment opens what is behind it (`href`, with from and to). The server's table of the numbers stays.
 */
import { uPlot } from "../../vendor/uplot.js";
import { FORMS, axisLabel, axisValue } from "../lib/units.js";

/** @typedef {{ name: string, hue: string, values: (number | null)[], href?: string }} Series */
/** @typedef {{ step: number, unit: string, kind: string, times: number[], series: Series[], open?: string }} Chart */

class TimeChart extends HTMLElement {
  /** @type {Chart | undefined} */
  #chart;
  /** @type {any} */
  #plot;
  #place = document.createElement("div");
  #tip = document.createElement("div");
  /** @type {Set<number>} */
  #hidden = new Set();
  /** @type {ResizeObserver | undefined} */
  #size;
  /** @type {MutationObserver | undefined} */
  #theme;
  #scheme = matchMedia("(prefers-color-scheme: dark)");

  connectedCallback() {
    if (this.#chart) return;
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
    this.#chart = text ? JSON.parse(text) : undefined;
    if (!this.#chart) return;
    this.#place.className = "chart-drawing";
    this.#place.setAttribute("role", "img");
    this.#place.setAttribute("aria-label", this.#summary());
    this.#tip.className = "chart-tip";
    this.#tip.hidden = true;
    const old = this.querySelector(".chart-drawing");
    if (old) old.replaceWith(this.#place);
    else this.append(this.#place);
    this.#place.append(this.#tip);
    this.#legend();
    this.#draw();
    this.#size = new ResizeObserver(() => this.#fit());
    this.#size.observe(this.#place);
    this.#theme = new MutationObserver(this.#redraw);
    this.#theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.#scheme.addEventListener("change", this.#redraw);
  }

  disconnectedCallback() {
    this.#size?.disconnect();
    this.#theme?.disconnect();
    this.#scheme.removeEventListener("change", this.#redraw);
    this.#plot?.destroy();
  }

  get #isStacked() {
    return this.#chart?.kind === "stack";
  }

  #redraw = () => {
    this.#plot?.destroy();
    this.#draw();
  };

  #fit() {
    const { clientWidth, clientHeight } = this.#place;
    if (this.#plot && clientWidth) this.#plot.setSize({ width: clientWidth, height: clientHeight });
  }

  #summary() {
    const chart = /** @type {Chart} */ (this.#chart);
    const title = this.querySelector("h3")?.textContent?.trim() ?? "Chart";
    return `${title}: ${chart.series.map((one) => one.name).join(", ")} over time`;
  }

  #legend() {
    const chart = /** @type {Chart} */ (this.#chart);
    const head = this.querySelector(".chart-head");
    if (!head || chart.series.length < 2) return;
    const legend = document.createElement("div");
    legend.className = "chart-legend";
    chart.series.forEach((one, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = `hue-${one.hue}`;
      button.title = one.name;
      button.setAttribute("aria-pressed", "true");
      const name = document.createElement("span");
      name.textContent = one.name;
      button.append(document.createElement("i"), name);
      button.addEventListener("click", () => {
        if (!this.#hidden.delete(at)) this.#hidden.add(at);
        button.setAttribute("aria-pressed", String(!this.#hidden.has(at)));
        this.#redraw();
      });
      legend.append(button);
    });
    head.append(legend);
  }

  #draw() {
    const chart = /** @type {Chart} */ (this.#chart);
    const probe = this.#place;
    const tone = (/** @type {string} */ name) => {
      probe.style.color = `var(${name})`;
      const found = getComputedStyle(probe).color;
      probe.style.removeProperty("color");
      return found;
    };
    const font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--font-mono")}`;
    const axis = { stroke: tone("--text-muted"), font, grid: { stroke: tone("--line-soft"), width: 1 }, ticks: { show: false } };
    const shown = chart.series.map((one, at) => ({ ...one, at })).filter((one) => !this.#hidden.has(one.at));
    const rows = this.#isStacked ? stacked(shown.map((one) => one.values)) : shown.map((one) => one.values);
    // What lies under is drawn last of a stack's sums, so the largest goes first.
    const order = this.#isStacked ? shown.map((_, at) => shown.length - 1 - at) : shown.map((_, at) => at);
    const bars = chart.kind === "line" ? undefined : uPlot.paths.bars?.({ size: [0.8, 24], align: 1 });
    const compact = this.#place.clientHeight < 100;
    this.#plot = new uPlot(
      {
        width: this.#place.clientWidth || 300,
        height: this.#place.clientHeight || 150,
        padding: [6, 8, 0, 0],
        legend: { show: false },
        tzDate: (/** @type {number} */ ts) => new Date(ts * 1000),
        cursor: { y: false, points: { size: 6 }, sync: { key: "time" }, drag: { x: true, y: false, setScale: false } },
        scales: { x: { time: true, range: () => this.#range }, y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, most > 0 ? most * 1.12 : 1] } },
        axes: [
          { ...axis, size: 22, space: 60, grid: { show: false }, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((one) => axisLabel(one, (this.#range[1] ?? 0) - (this.#range[0] ?? 0))) },
          { ...axis, size: chart.unit === "s" ? 68 : 56, space: compact ? 24 : 32, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((one) => axisValue(chart.unit, one)) },
        ],
        series: [
          {},
          ...order.map((at) => {
            const one = /** @type {Series} */ (shown[at]);
            const color = tone(one.hue === "error" ? "--status-error" : one.hue === "before" ? "--line-control" : `--chart-${one.hue}`);
            return {
              stroke: color,
              width: bars ? 0 : 1.5,
              fill: bars ? color : undefined,
              dash: one.hue === "before" ? [4, 3] : undefined,
              paths: bars,
              spanGaps: false,
              points: bars ? { show: false } : { show: true, size: 4, fill: color, filter: alone },
            };
          }),
        ],
        hooks: { setCursor: [() => this.#read(shown)], setSelect: [(/** @type {any} */ plot) => this.#zoom(plot)] },
      },
      [chart.times, ...order.map((at) => rows[at] ?? [])],
      this.#place,
    );
    const over = this.#plot.over;
    over.addEventListener("click", () => this.#open());
    over.addEventListener("mouseleave", () => (this.#tip.hidden = true));
  }

  /** @returns {[number, number]} */
  get #range() {
    const { times, step } = /** @type {Chart} */ (this.#chart);
    const first = times[0] ?? 0;
    return [first, (times.at(-1) ?? first) + step];
  }

  /** @param {(Series & { at: number })[]} shown */
  #read(shown) {
    const chart = /** @type {Chart} */ (this.#chart);
    const at = this.#plot?.cursor.idx;
    const left = this.#plot?.cursor.left;
    // The line is on every chart of the page; the figures only where the pointer is.
    if (at === null || at === undefined || left < 0 || !this.#plot.over.matches(":hover")) {
      this.#tip.hidden = true;
      return;
    }
    const form = FORMS[chart.unit] ?? String;
    const time = document.createElement("time");
    time.textContent = new Date((chart.times[at] ?? 0) * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    this.#tip.replaceChildren(
      time,
      ...shown.slice(0, 12).map((one) => {
        const line = document.createElement("div");
        line.className = `hue-${one.hue}`;
        const name = document.createElement("span");
        name.textContent = one.name;
        const value = document.createElement("b");
        const said = one.values[at];
        value.textContent = said === null || said === undefined ? "–" : form(said);
        line.append(document.createElement("i"), name, value);
        return line;
      }),
    );
    this.#tip.hidden = false;
    const offset = this.#plot.over.offsetLeft + left;
    const flips = offset > this.#place.clientWidth / 2;
    this.#tip.style.insetInlineStart = flips ? "auto" : `${offset + 12}px`;
    this.#tip.style.insetInlineEnd = flips ? `${this.#place.clientWidth - offset + 12}px` : "auto";
    this.#tip.style.insetBlockStart = "0";
    this.#plot.over.style.cursor = chart.open ? "pointer" : "crosshair";
  }

  /** @param {any} plot */
  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < 8) return;
    const from = plot.posToVal(left, "x");
    const to = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    location.assign(within(location.href, from, to));
  }

  /**
   * The line next to the pointer, or the part of the bar under it.
   *
   * @param {number} at
   * @returns {Series | undefined}
   */
  #nearest(at) {
    const chart = /** @type {Chart} */ (this.#chart);
    const shown = chart.series.filter((_, number) => !this.#hidden.has(number));
    const heights = this.#isStacked ? stacked(shown.map((one) => one.values)) : shown.map((one) => one.values);
    const top = this.#plot.cursor.top;
    let found;
    let least = Infinity;
    shown.forEach((one, number) => {
      const value = heights[number]?.[at];
      if (value === null || value === undefined) return;
      const place = this.#plot.valToPos(value, "y");
      const away = this.#isStacked ? (place <= top ? top - place : Infinity) : Math.abs(place - top);
      if (away < least) [found, least] = [one, away];
    });
    return found;
  }

  #open() {
    const chart = /** @type {Chart} */ (this.#chart);
    const at = this.#plot?.cursor.idx;
    const from = chart.times[at];
    if (!chart.open || from === undefined) return;
    const near = this.#nearest(at);
    location.assign(within(new URL(near?.href || chart.open, location.href).href, from, from + chart.step));
  }
}

/**
 * The values without a neighbour: a line cannot show them, so they are drawn as points.
 *
 * @param {any} plot
 * @param {number} row
 */
function alone(plot, row) {
  const values = plot.data[row] ?? [];
  const found = [];
  for (let at = 0; at < values.length; at++) {
    if (isThere(values[at]) && !isThere(values[at - 1]) && !isThere(values[at + 1])) found.push(at);
  }
  return found;
}

/** @param {number | null | undefined} value */
function isThere(value) {
  return value !== null && value !== undefined;
}

/**
 * An address with the time in it.
 *
 * @param {string} address
 * @param {number} from seconds
 * @param {number} to
 */
function within(address, from, to) {
  const url = new URL(address);
  for (const name of ["range", "from", "to", "after", "peek"]) url.searchParams.delete(name);
  url.searchParams.set("from", stamp(from));
  url.searchParams.set("to", stamp(to));
  return url.href;
}

/** @param {number} seconds */
function stamp(seconds) {
  return new Date(Math.round(seconds * 1000)).toISOString().replace(".000Z", "Z");
}

/**
 * Each row upon those before it.
 *
 * @param {(number | null)[][]} rows
 */
function stacked(rows) {
  /** @type {number[]} */
  let below = [];
  return rows.map((row) => {
    below = row.map((value, at) => (below[at] ?? 0) + (value ?? 0));
    return below;
  });
}

customElements.define("time-chart", TimeChart);
