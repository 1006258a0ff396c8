/** Stores user preferences in cookies, so that the server renders pages with them. */

const YEAR_SECONDS = 31_536_000;

/**
 * @param {string} name
 * @param {string} value an empty value deletes the cookie
 */
export function saveCookie(name, value) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  const age = value ? YEAR_SECONDS : 0;
  document.cookie = `slipway_${name}=${encodeURIComponent(value)}; Path=/; Max-Age=${age}; SameSite=Lax${secure}`;
}

/**
 * Sets or removes a `data-` attribute on <html> and stores it in a cookie.
 *
 * @param {string} name
 * @param {string} value
 */
export function setPreference(name, value) {
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
  saveCookie(name, value);
}

/** @param {string} name */
export function getPreference(name) {
  return document.documentElement.dataset[name] ?? "";
}
