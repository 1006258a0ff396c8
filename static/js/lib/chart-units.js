/** Formats chart values by their unit. */
import { formatCompact, formatDuration } from "./formatting.js";
import { formatDay, formatTimeOfDay } from "./time-zone.js";

/** @param {number} value */
function formatMoney(value) {
  if (value === 0) return "$0";
  if (Math.abs(value) >= 1) return `$${value.toFixed(2)}`;
  const places = Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value))));
  return places > 7 ? "<$0.000001" : `$${value.toFixed(places)}`;
}

/** @param {number} value */
function formatNumber(value) {
  if (Math.abs(value) >= 1000) return formatCompact(Math.round(value));
  return Number.isInteger(value)
    ? String(value)
    : value
        .toFixed(Math.abs(value) < 1 ? 3 : 2)
        .replace(/0+$/, "")
        .replace(/\.$/, "");
}

/** @type {Record<string, (value: number) => string>} */
const VALUE_FORMATTERS = {
  count: formatNumber,
  tokens: (value) => formatCompact(Math.round(value)),
  s: (value) => (value === 0 ? "0" : formatDuration(value * 1000)),
  share: (value) => `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`,
  usd: formatMoney,
  score: formatNumber,
};

/**
 * Format a value with its unit; a unit without format is a plain number.
 *
 * @param {string} unit
 * @param {number} value
 */
export function formatChartValue(unit, value) {
  return (VALUE_FORMATTERS[unit] ?? formatNumber)(value);
}

/**
 * Format an axis value without trailing zeros: `20 s`, `$0.05`.
 *
 * @param {string} unit
 * @param {number} value
 */
export function formatAxisValue(unit, value) {
  const text = formatChartValue(unit, value);
  return unit === "usd" || unit === "s"
    ? text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "")
    : text;
}

const DAY = 86_400;

/**
 * Format an axis time: hours for spans up to two days, dates beyond.
 *
 * @param {number} seconds
 * @param {number} span
 * @param {string} [zone] the page's time zone unless given
 */
export function formatAxisTime(seconds, span, zone) {
  const date = new Date(seconds * 1000);
  return span <= 2 * DAY ? formatTimeOfDay(date, { zone }) : formatDay(date, zone);
}
