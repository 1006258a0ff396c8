/** What a person chose, remembered in cookies so that the server's first byte knows it too. */

const YEAR = 31_536_000;

/**
 * @param {string} name
 * @param {string} value an empty one forgets the choice
 */
export function remember(name, value) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  const age = value ? YEAR : 0;
  document.cookie = `slipway_${name}=${encodeURIComponent(value)}; Path=/; Max-Age=${age}; SameSite=Lax${secure}`;
}

/**
 * Sets or removes a `data-` attribute on <html> and remembers it.
 *
 * @param {string} name
 * @param {string} value
 */
export function choose(name, value) {
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
  remember(name, value);
}

/** @param {string} name */
export function chosen(name) {
  return document.documentElement.dataset[name] ?? "";
}
