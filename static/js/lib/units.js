/** How the figures of charts are written, by their unit. */
import { compact, duration } from "./figures.js";

/** @param {number} value */
function money(value) {
  if (value === 0) return "$0";
  if (Math.abs(value) >= 1) return `$${value.toFixed(2)}`;
  const places = Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value))));
  return places > 7 ? "<$0.000001" : `$${value.toFixed(places)}`;
}

/** @param {number} value */
function plain(value) {
  if (Math.abs(value) >= 1000) return compact(Math.round(value));
  return Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) < 1 ? 3 : 2).replace(/0+$/, "").replace(/\.$/, "");
}

/** @type {Record<string, (value: number) => string>} */
export const FORMS = {
  count: plain,
  tokens: (value) => compact(Math.round(value)),
  s: (value) => (value === 0 ? "0" : duration(value * 1000)),
  share: (value) => `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`,
  usd: money,
  score: plain,
};

/**
 * A value at an axis: its round number without needless zeros, `20 s`, `$0.05`.
 *
 * @param {string} unit
 * @param {number} value
 */
export function axisValue(unit, value) {
  const said = (FORMS[unit] ?? plain)(value);
  return unit === "usd" || unit === "s" ? said.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "") : said;
}

const DAY = 86_400;

/**
 * The time at an axis: hours within two days, then dates.
 *
 * @param {number} seconds
 * @param {number} span
 */
export function axisLabel(seconds, span) {
  const moment = new Date(seconds * 1000);
  if (span <= 2 * DAY) return moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
