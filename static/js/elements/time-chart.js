/**
 * <time-chart class="chart" for="id" [zoom="?range="]>: draws the time series of a `json_script`:
 *
 *   { step, unit, kind: "line" | "bars" | "stack", times: [seconds], series: [{ name, hue, values, href? }] }
 *
 * The tooltip shows all series at the pointer, legend buttons toggle series, a drag zooms to a time range, and a click
 * opens the runs of a point (`href` with `from` and `to`). The table rendered by the server stays.
 */
import { uPlot } from "../../vendor/uplot.js";
import { VALUE_FORMATTERS, formatAxisTime, formatAxisValue } from "../lib/chart-units.js";

/** @typedef {{ name: string, hue: string, values: (number | null)[], href?: string }} Series */
/** @typedef {{ step: number, unit: string, kind: string, times: number[], series: Series[], open?: string }} Chart */

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
    if (this.#chart) return;
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
    this.#chart = text ? JSON.parse(text) : undefined;
    if (!this.#chart) return;
    this.#container.className = "chart-drawing";
    this.#container.setAttribute("role", "img");
    this.#container.setAttribute("aria-label", this.#summary());
    this.#tooltip.className = "chart-tooltip";
    this.#tooltip.hidden = true;
    const old = this.querySelector(".chart-drawing");
    if (old) old.replaceWith(this.#container);
    else this.append(this.#container);
    this.#container.append(this.#tooltip);
    this.#legend();
    this.#draw();
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

  #summary() {
    const chart = /** @type {Chart} */ (this.#chart);
    const title = this.querySelector("h3")?.textContent?.trim() ?? "Chart";
    return `${title}: ${chart.series.map((series) => series.name).join(", ")} over time`;
  }

  #legend() {
    const chart = /** @type {Chart} */ (this.#chart);
    const head = this.querySelector(".chart-head");
    if (!head || chart.series.length < 2) return;
    const legend = document.createElement("div");
    legend.className = "chart-legend";
    chart.series.forEach((series, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = `hue-${series.hue}`;
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
      .filter((series) => !this.#hidden.has(series.index));
    const rows = this.#isStacked
      ? stacked(shown.map((series) => series.values))
      : shown.map((series) => series.values);
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
        padding: [6, 8, 0, 0],
        legend: { show: false },
        tzDate: (/** @type {number} */ ts) => new Date(ts * 1000),
        cursor: {
          y: false,
          points: { size: 6 },
          sync: { key: "time" },
          drag: { x: true, y: false, setScale: false },
        },
        scales: {
          x: { time: true, range: () => this.#range },
          y: {
            range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ max) => [
              0,
              max > 0 ? max * 1.12 : 1,
            ],
          },
        },
        axes: [
          {
            ...axis,
            size: 22,
            space: 60,
            grid: { show: false },
            values: (/** @type {any} */ _, /** @type {number[]} */ values) =>
              values.map((value) =>
                formatAxisTime(value, (this.#range[1] ?? 0) - (this.#range[0] ?? 0)),
              ),
          },
          {
            ...axis,
            size: chart.unit === "s" ? 68 : 56,
            space: compact ? 24 : 32,
            values: (/** @type {any} */ _, /** @type {number[]} */ values) =>
              values.map((value) => formatAxisValue(chart.unit, value)),
          },
        ],
        series: [
          {},
          ...order.map((index) => {
            const series = /** @type {Series} */ (shown[index]);
            const color = resolveColor(
              series.hue === "error"
                ? "--status-error"
                : series.hue === "before"
                  ? "--line-control"
                  : `--chart-${series.hue}`,
            );
            return {
              stroke: color,
              width: bars ? 0 : 1.5,
              fill: bars ? color : undefined,
              dash: series.hue === "before" ? [4, 3] : undefined,
              paths: bars,
              spanGaps: false,
              points: bars
                ? { show: false }
                : { show: true, size: 4, fill: color, filter: isolatedPoints },
            };
          }),
        ],
        hooks: {
          setCursor: [() => this.#updateTooltip(shown)],
          setSelect: [(/** @type {any} */ plot) => this.#zoom(plot)],
        },
      },
      [chart.times, ...order.map((index) => rows[index] ?? [])],
      this.#container,
    );
    const over = this.#plot.over;
    over.addEventListener("click", () => this.#openPoint());
    over.addEventListener("mouseleave", () => (this.#tooltip.hidden = true));
  }

  /** @returns {[number, number]} */
  get #range() {
    const { times, step } = /** @type {Chart} */ (this.#chart);
    const first = times[0] ?? 0;
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
    const format = VALUE_FORMATTERS[chart.unit] ?? String;
    const time = document.createElement("time");
    time.textContent = new Date((chart.times[index] ?? 0) * 1000).toLocaleString(undefined, {
      dateStyle: "medium",
      timeStyle: "short",
    });
    this.#tooltip.replaceChildren(
      time,
      ...shown.slice(0, 12).map((series) => {
        const line = document.createElement("div");
        line.className = `hue-${series.hue}`;
        const name = document.createElement("span");
        name.textContent = series.name;
        const value = document.createElement("b");
        const raw = series.values[index];
        value.textContent = raw === null || raw === undefined ? "–" : format(raw);
        line.append(document.createElement("i"), name, value);
        return line;
      }),
    );
    this.#tooltip.hidden = false;
    const offset = this.#plot.over.offsetLeft + left;
    const isRightHalf = offset > this.#container.clientWidth / 2;
    this.#tooltip.style.insetInlineStart = isRightHalf ? "auto" : `${offset + 12}px`;
    this.#tooltip.style.insetInlineEnd = isRightHalf
      ? `${this.#container.clientWidth - offset + 12}px`
      : "auto";
    this.#tooltip.style.insetBlockStart = "0";
    this.#plot.over.style.cursor = chart.open ? "pointer" : "crosshair";
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
      ? stacked(shown.map((series) => series.values))
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

/**
 * Return the indexes of values without neighbours: a line cannot show them, so they are drawn as points.
 *
 * @param {any} plot
 * @param {number} row
 */
function isolatedPoints(plot, row) {
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
 * @param {string} address
 * @param {number} from seconds
 * @param {number} to
 */
function withTimeRange(address, from, to) {
  const url = new URL(address);
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
function stacked(rows) {
  /** @type {number[]} */
  let below = [];
  return rows.map((row) => {
    below = row.map((value, index) => (below[index] ?? 0) + (value ?? 0));
    return below;
  });
}

customElements.define("time-chart", TimeChart);
