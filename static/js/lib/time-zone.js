/**
 * The time zone of the page, which the server names on <html>, and the one format of times.
 *
 * The browser's zone is stored in a cookie, so that the server renders the next page with it.
 */
import { saveCookie } from "./preferences.js";

const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function pageZone() {
  return document.documentElement.dataset.timeZone || browserZone;
}

export function rememberBrowserZone() {
  const cookie = `slipway_time_zone=${encodeURIComponent(browserZone)}`;
  if (browserZone && !document.cookie.split("; ").includes(cookie))
    saveCookie("time_zone", browserZone);
}

/**
 * @param {Date} time
 * @param {Intl.DateTimeFormatOptions} options
 * @param {string} [zone]
 */
function formatParts(time, options, zone = pageZone()) {
  const format = new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone: zone });
  return Object.fromEntries(format.formatToParts(time).map((part) => [part.type, part.value]));
}

/** @type {Intl.DateTimeFormatOptions} */
const MINUTES = {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
};

/**
 * `3 Feb 2026 14:05`
 *
 * @param {Date} time
 * @param {string} [zone]
 */
export function formatDateTime(time, zone) {
  const parts = formatParts(time, MINUTES, zone);
  return `${parts.day} ${shortMonth(parts.month)} ${parts.year} ${parts.hour}:${parts.minute}`;
}

/**
 * `3 Feb 2026 14:05:06 CET`
 *
 * @param {Date} time
 */
export function formatExactTime(time) {
  const parts = formatParts(time, { ...MINUTES, second: "2-digit", timeZoneName: "short" });
  return `${formatDateTime(time)}:${parts.second} ${parts.timeZoneName}`;
}

/**
 * `3 Feb`, with the year when it is not the current one
 *
 * @param {Date} time
 * @param {string} [zone]
 */
export function formatDay(time, zone) {
  const parts = formatParts(time, MINUTES, zone);
  const day = `${parts.day} ${shortMonth(parts.month)}`;
  return parts.year === formatParts(new Date(), MINUTES, zone).year ? day : `${day} ${parts.year}`;
}

/**
 * `14:05`, or `14:05:06.007` with milliseconds
 *
 * @param {Date} time
 * @param {{ zone?: string, exact?: boolean }} [options]
 */
export function formatTimeOfDay(time, { zone, exact = false } = {}) {
  const parts = formatParts(time, { hour: "2-digit", minute: "2-digit", second: "2-digit" }, zone);
  const minutes = `${parts.hour}:${parts.minute}`;
  if (!exact) return minutes;
  return `${minutes}:${parts.second}.${String(time.getUTCMilliseconds()).padStart(3, "0")}`;
}

/**
 * Abbreviates to three letters, as the server does; browsers write `Sept`.
 *
 * @param {string | undefined} month
 */
function shortMonth(month) {
  return (month ?? "").slice(0, 3);
}
