/** Formats numbers and times for display, in the same format as apps/web_ui/formatting.py. */

import { formatDay } from "./time-zone.js";

/** @param {number | null | undefined} milliseconds */
export function formatDuration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 0.5) return milliseconds <= 0 ? "0 ms" : "<1 ms";
  if (milliseconds < 999.5) return `${milliseconds.toFixed(0)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return formatPair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400)
    return formatPair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return formatPair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/**
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function formatPair(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

/** @param {number} value */
export function formatCompact(value) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ])) {
    if (value >= size)
      return (value / size).toFixed(value < 100 * size ? 1 : 0).replace(/\.0$/, "") + unit;
  }
  return String(value);
}

/** @param {number | null | undefined} amount dollars */
export function formatMoney(amount) {
  if (amount === null || amount === undefined) return "–";
  if (amount === 0) return "$0";
  if (Math.abs(amount) < 0.000001) return "<$0.000001";
  if (Math.abs(amount) >= 1)
    return `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${amount.toFixed(Math.max(2, 1 - Math.floor(Math.log10(Math.abs(amount)))))}`;
}

/**
 * @param {Date} timestamp
 * @param {Date} [now]
 */
export function formatRelativeTime(timestamp, now = new Date()) {
  const seconds = (now.getTime() - timestamp.getTime()) / 1000;
  if (seconds < 10 && seconds > -60) return "just now";
  if (seconds >= 0 && seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds >= 0 && seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds >= 0 && seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds >= 0 && seconds < 604_800) return `${Math.floor(seconds / 86_400)} d ago`;
  return formatDay(timestamp);
}
