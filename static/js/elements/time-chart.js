/**
 * <time-chart class="chart" for="id" [zoom="?range="]>: draws the time series of a `json_script`:
 *
 *   { step, unit, kind: "line" | "bars" | "stack", times: [seconds],
 *     series: [{ name, hue, dash?, values, before?, href? }], labels?, links? }
 *
 * With `labels`, the points have names instead of times ("#3 name"; the axis shows the part before the space), and a
 * click opens the point's link.
 *
 * The tooltip shows the series at the pointer, a drag zooms to a time range, and a click opens the runs of a point
 * (`href` with `from` and `to`). A legend button toggles a series and its line of the previous period (`before`). The
 * table rendered by the server stays.
 */
import { uPlot } from "../../vendor/uplot.js";
import { formatAxisTime, formatAxisValue, formatChartValue } from "../lib/chart-units.js";
import { formatDateTime, pageZone } from "../lib/time-zone.js";

/** @typedef {(number | null)[]} Values */
/** @typedef {{ name: string, hue: string, dash?: number, values: Values, before?: Values | null, href?: string }} Series */
/** @typedef {{ step: number, unit: string, kind: string, zone: string, times: number[], series: Series[], open?: string, labels?: string[], links?: string[] }} Chart */

const MAX_TOOLTIP_LINES = 12;
/** Units of counts and sums, which stand as bars unless they are compared with the previous period. */
const SUMS = ["count", "tokens", "usd"];
/** The distances between two labels of an axis of counts. */
const COUNT_STEPS = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((n) => n * 10 ** power),
).flat();
/** Patterns that tell lines of one hue apart, by `dash`. */
const DASHES = [undefined, [8, 3], [2, 3], [10, 3, 2, 3]];
const DASH_BEFORE = [3, 4];
/** The distances between two labels of an axis with names. */
const NAME_STEPS = [1, 2, 5, 10, 20, 50];

/** The width of a character of an axis label, and of what stands between label and plot, in pixels. */
const CHARACTER_WIDTH = 6.7;
const AXIS_MARGIN = 16;

class TimeChart extends HTMLElement {
  /** @type {Chart | undefined} */
  #chart;
  /** @type {any} */
  #plot;
  #container = document.createElement("div");
  #tooltip = document.createElement("div");
  /** @type {Set<number>} */
  #hidden = new Set();
  /** @type {ResizeObserver | undefined} */
  #resizeObserver;
  /** @type {MutationObserver | undefined} */
  #themeObserver;
  #scheme = matchMedia("(prefers-color-scheme: dark)");

  connectedCallback() {
    if (this.#chart) {
      // The element was moved: its drawing was destroyed when it left the document.
      this.#observe();
      this.#draw();
      return;
    }
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
    this.#chart = text ? JSON.parse(text) : undefined;
    if (!this.#chart) return;
    this.#container.className = "chart-drawing";
    this.#container.setAttribute("role", "img");
    this.#container.setAttribute("aria-label", this.#describe());
    this.#tooltip.className = "chart-tooltip";
    this.#tooltip.hidden = true;
    const old = this.querySelector(".chart-drawing");
    if (old) old.replaceWith(this.#container);
    else this.append(this.#container);
    this.#container.append(this.#tooltip);
    this.#appendLegend();
    this.#observe();
    this.#draw();
  }

  #observe() {
    this.#resizeObserver = new ResizeObserver(() => this.#resize());
    this.#resizeObserver.observe(this.#container);
    this.#themeObserver = new MutationObserver(this.#redraw);
    this.#themeObserver.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.#scheme.addEventListener("change", this.#redraw);
  }

  disconnectedCallback() {
    this.#resizeObserver?.disconnect();
    this.#themeObserver?.disconnect();
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

  #resize() {
    const { clientWidth, clientHeight } = this.#container;
    if (this.#plot && clientWidth) this.#plot.setSize({ width: clientWidth, height: clientHeight });
  }

  #describe() {
    const chart = /** @type {Chart} */ (this.#chart);
    const title = this.querySelector("h3")?.textContent?.trim() ?? "Chart";
    return `${title}: ${chart.series.map((series) => series.name).join(", ")} ${this.#hasNames ? "by name" : "over time"}`;
  }

  /**
   * Whether the chart shows anything of the series: a bar needs a value above 0, also where it is a line because it
   * is compared, another line any value.
   *
   * @param {Series} series
   */
  #isDrawn(series) {
    const chart = /** @type {Chart} */ (this.#chart);
    const isLine = chart.kind === "line" && !(series.before && SUMS.includes(chart.unit));
    return [...series.values, ...(series.before ?? [])].some((value) =>
      isLine ? isDefined(value) : Boolean(value),
    );
  }

  /** Whether the values are counts; a mean of them is not. */
  get #hasWholeNumbers() {
    const { series, unit } = /** @type {Chart} */ (this.#chart);
    const values = series.flatMap((line) => [...line.values, ...(line.before ?? [])]);
    return unit === "count" && values.every((value) => value === null || Number.isInteger(value));
  }

  #appendLegend() {
    const chart = /** @type {Chart} */ (this.#chart);
    const head = this.querySelector(".chart-head");
    const comparing = chart.series.some((series) => series.before);
    if (!head || (chart.series.length < 2 && !comparing)) return;
    const legend = document.createElement("div");
    legend.className = "chart-legend";
    chart.series.forEach((series, index) => {
      if (!this.#isDrawn(series)) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = seriesClass(series);
      button.title = series.name;
      button.setAttribute("aria-pressed", "true");
      const name = document.createElement("span");
      name.textContent = series.name;
      button.append(document.createElement("i"), name);
      button.addEventListener("click", () => {
        if (!this.#hidden.delete(index)) this.#hidden.add(index);
        button.setAttribute("aria-pressed", String(!this.#hidden.has(index)));
        this.#redraw();
      });
      legend.append(button);
    });
    if (comparing) {
      const note = document.createElement("span");
      note.className = "chart-legend-note";
      note.append(document.createElement("i"), "previous");
      legend.append(note);
    }
    head.append(legend);
  }

  #draw() {
    const chart = /** @type {Chart} */ (this.#chart);
    const container = this.#container;
    const resolveColor = (/** @type {string} */ name) => {
      container.style.color = `var(${name})`;
      const color = getComputedStyle(container).color;
      container.style.removeProperty("color");
      return color;
    };
    const font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--font-mono")}`;
    const axis = {
      stroke: resolveColor("--text-muted"),
      font,
      grid: { stroke: resolveColor("--line-soft"), width: 1 },
      ticks: { show: false },
    };
    const shown = chart.series
      .map((series, index) => ({ ...series, index }))
      .filter((series) => !this.#hidden.has(series.index) && this.#isDrawn(series));
    const rows = this.#isStacked
      ? computeCumulativeSums(shown.map((series) => series.values))
      : shown.map((series) => series.values);
    const before = this.#isStacked ? [] : shown.filter((series) => series.before);
    // Draw the largest sum of a stack first, so that the others cover it.
    const order = this.#isStacked
      ? shown.map((_, index) => shown.length - 1 - index)
      : shown.map((_, index) => index);
    const bars =
      chart.kind === "line" ? undefined : uPlot.paths.bars?.({ size: [0.8, 24], align: 1 });
    const compact = this.#container.clientHeight < 100;
    this.#plot = new uPlot(
      {
        width: this.#container.clientWidth || 300,
        height: this.#container.clientHeight || 150,
        // Half of the last label of the time axis stands beyond the plot.
        padding: [6, 22, 0, 0],
        legend: { show: false },
        tzDate: (/** @type {number} */ ts) =>
          uPlot.tzDate(new Date(ts * 1000), chart.zone || pageZone()),
        cursor: {
          y: false,
          points: { size: 6 },
          sync: { key: this.#hasNames ? "names" : "time" },
          drag: { x: !this.#hasNames, y: false, setScale: false },
        },
        scales: {
          x: { time: !this.#hasNames, range: () => this.#range },
          y: {
            range: (/** @type {any} */ _, /** @type {number} */ min, /** @type {number} */ max) => [
              min < 0 ? min * 1.12 : 0,
              max > 0 ? max * 1.12 : min < 0 ? 0 : 1,
            ],
          },
        },
        axes: [
          {
            ...axis,
            size: 22,
            space: 60,
            grid: { show: false },
            ...(this.#hasNames && { incrs: NAME_STEPS }),
            values: (/** @type {any} */ _, /** @type {number[]} */ values) =>
              values.map((value) => this.#formatPosition(value)),
          },
          {
            ...axis,
            size: (/** @type {any} */ _, /** @type {string[] | null} */ labels) =>
              AXIS_MARGIN +
              CHARACTER_WIDTH * Math.max(5, ...(labels ?? []).map((label) => label.length)),
            space: compact ? 24 : 32,
            ...(this.#hasWholeNumbers && { incrs: COUNT_STEPS }),
            values: (/** @type {any} */ _, /** @type {number[]} */ values) =>
              values.map((value) => formatAxisValue(chart.unit, value)),
          },
        ],
        series: [
          {},
          ...order.map((index) => {
            const series = /** @type {Series} */ (shown[index]);
            const color = resolveColor(colorToken(series));
            return {
              stroke: color,
              width: bars ? 0 : 1.5,
              fill: bars ? color : undefined,
              dash: bars ? undefined : DASHES[(series.dash ?? 0) % DASHES.length],
              paths: bars,
              spanGaps: false,
              points: bars
                ? { show: false }
                : {
                    show: true,
                    size: 4,
                    fill: color,
                    filter: this.#hasNames ? undefined : findIsolatedPoints,
                  },
            };
          }),
          ...before.map((series) => ({
            stroke: resolveColor(colorToken(series)),
            alpha: 0.6,
            width: 1,
            dash: DASH_BEFORE,
            spanGaps: false,
            points: { show: true, size: 3, filter: findIsolatedPoints },
          })),
        ],
        hooks: {
          setCursor: [() => this.#updateTooltip(shown)],
          setSelect: [(/** @type {any} */ plot) => this.#zoom(plot)],
        },
      },
      [
        chart.times,
        ...order.map((index) => rows[index] ?? []),
        ...before.map((series) => series.before ?? []),
      ],
      this.#container,
    );
    const over = this.#plot.over;
    over.addEventListener("click", () => this.#openPoint());
    over.addEventListener("mouseleave", () => (this.#tooltip.hidden = true));
  }

  get #hasNames() {
    return Boolean(this.#chart?.labels?.length);
  }

  /** @param {number} value */
  #formatPosition(value) {
    const chart = /** @type {Chart} */ (this.#chart);
    if (this.#hasNames) return chart.labels?.[value]?.split(" ", 1)[0] ?? "";
    const [start, end] = this.#range;
    return formatAxisTime(value, end - start, chart.zone || pageZone());
  }

  /** @returns {[number, number]} */
  get #range() {
    const { times, step } = /** @type {Chart} */ (this.#chart);
    const first = times[0] ?? 0;
    if (this.#hasNames) return [-0.5, times.length - 0.5];
    return [first, (times.at(-1) ?? first) + step];
  }

  /** @param {(Series & { index: number })[]} shown */
  #updateTooltip(shown) {
    const chart = /** @type {Chart} */ (this.#chart);
    const index = this.#plot?.cursor.idx;
    const left = this.#plot?.cursor.left;
    // The cursor is synchronised between charts; only the hovered chart shows a tooltip.
    if (index === null || index === undefined || left < 0 || !this.#plot.over.matches(":hover")) {
      this.#tooltip.hidden = true;
      return;
    }
    const format = (/** @type {number | null | undefined} */ value) =>
      isDefined(value) ? formatChartValue(chart.unit, /** @type {number} */ (value)) : "–";
    const time = document.createElement("time");
    time.textContent =
      chart.labels?.[index] ??
      formatDateTime(new Date((chart.times[index] ?? 0) * 1000), chart.zone || pageZone());
    const listed = selectLargest(shown, index);
    this.#tooltip.replaceChildren(
      time,
      ...listed.map((series) => {
        const line = document.createElement("div");
        line.className = seriesClass(series);
        const name = document.createElement("span");
        name.textContent = series.name;
        const value = document.createElement("b");
        value.textContent = format(series.values[index]);
        line.append(document.createElement("i"), name, value);
        if (series.before) {
          const before = document.createElement("small");
          before.textContent = `before ${format(series.before[index])}`;
          line.append(before);
        }
        return line;
      }),
    );
    if (listed.length < shown.length) {
      const rest = document.createElement("small");
      rest.textContent = `and ${shown.length - listed.length} smaller`;
      this.#tooltip.append(rest);
    }
    this.#tooltip.hidden = false;
    const offset = this.#plot.over.offsetLeft + left;
    const isRightHalf = offset > this.#container.clientWidth / 2;
    this.#tooltip.style.insetInlineStart = isRightHalf ? "auto" : `${offset + 12}px`;
    this.#tooltip.style.insetInlineEnd = isRightHalf
      ? `${this.#container.clientWidth - offset + 12}px`
      : "auto";
    this.#tooltip.style.insetBlockStart = "0";
    this.#plot.over.style.cursor = chart.open || chart.links?.[index] ? "pointer" : "crosshair";
  }

  /** @param {any} plot */
  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < 8) return;
    const from = plot.posToVal(left, "x");
    const to = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    location.assign(withTimeRange(location.href, from, to));
  }

  /**
   * Return the series nearest to the pointer, or the bar segment under it.
   *
   * @param {number} index
   * @returns {Series | undefined}
   */
  #nearestSeries(index) {
    const chart = /** @type {Chart} */ (this.#chart);
    const shown = chart.series.filter((_, number) => !this.#hidden.has(number));
    const heights = this.#isStacked
      ? computeCumulativeSums(shown.map((series) => series.values))
      : shown.map((series) => series.values);
    const top = this.#plot.cursor.top;
    let nearest;
    let minDistance = Infinity;
    shown.forEach((series, number) => {
      const value = heights[number]?.[index];
      if (value === null || value === undefined) return;
      const y = this.#plot.valToPos(value, "y");
      const distance = this.#isStacked ? (y <= top ? top - y : Infinity) : Math.abs(y - top);
      if (distance < minDistance) [nearest, minDistance] = [series, distance];
    });
    return nearest;
  }

  #openPoint() {
    const chart = /** @type {Chart} */ (this.#chart);
    const index = this.#plot?.cursor.idx;
    const link = chart.links?.[index];
    if (link) {
      location.assign(link);
      return;
    }
    const from = chart.times[index];
    if (!chart.open || from === undefined) return;
    const nearest = this.#nearestSeries(index);
    location.assign(
      withTimeRange(
        new URL(nearest?.href || chart.open, location.href).href,
        from,
        from + chart.step,
      ),
    );
  }
}

/** @param {Series} series */
function seriesClass(series) {
  const pattern = (series.dash ?? 0) % DASHES.length;
  return pattern ? `hue-${series.hue} dash-${pattern}` : `hue-${series.hue}`;
}

/** @param {Series} series */
function colorToken(series) {
  return /^\d/.test(series.hue) ? `--chart-${series.hue}` : `--status-${series.hue}`;
}

/**
 * Return the series that the tooltip lists: all or, if there are too many, the largest at the index.
 *
 * @template {Series} T
 * @param {T[]} all
 * @param {number} index
 * @returns {T[]}
 */
function selectLargest(all, index) {
  if (all.length <= MAX_TOOLTIP_LINES) return all;
  const read = (/** @type {T} */ series) => series.values[index] ?? -Infinity;
  return [...all].sort((a, b) => read(b) - read(a)).slice(0, MAX_TOOLTIP_LINES);
}

/**
 * Return the indexes of values without neighbours: a line cannot show them, so they are drawn as points.
 *
 * @param {any} plot
 * @param {number} row
 */
function findIsolatedPoints(plot, row) {
  const values = plot.data[row] ?? [];
  const indexes = [];
  for (let index = 0; index < values.length; index++) {
    if (isDefined(values[index]) && !isDefined(values[index - 1]) && !isDefined(values[index + 1]))
      indexes.push(index);
  }
  return indexes;
}

/** @param {number | null | undefined} value */
function isDefined(value) {
  return value !== null && value !== undefined;
}

/**
 * Add a time range to a URL.
 *
 * @param {string} currentUrl
 * @param {number} from seconds
 * @param {number} to
 */
function withTimeRange(currentUrl, from, to) {
  const url = new URL(currentUrl);
  for (const name of ["range", "from", "to", "after", "preview"]) url.searchParams.delete(name);
  url.searchParams.set("from", toTimestamp(from));
  url.searchParams.set("to", toTimestamp(to));
  return url.href;
}

/** @param {number} seconds */
function toTimestamp(seconds) {
  return new Date(Math.round(seconds * 1000)).toISOString().replace(".000Z", "Z");
}

/**
 * Return the cumulative sums of the rows.
 *
 * @param {(number | null)[][]} rows
 */
function computeCumulativeSums(rows) {
  /** @type {number[]} */
  let below = [];
  return rows.map((row) => {
    below = row.map((value, index) => (below[index] ?? 0) + (value ?? 0));
    return below;
  });
}

customElements.define("time-chart", TimeChart);
