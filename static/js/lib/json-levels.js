/** A JSON value, one level at a time: what a viewer needs to draw it, and no more. */

const AT_ONCE = 100;
const LONGEST = 2000;
const NAMED = 5;
const LONGEST_NAMES = 90;

/**
 * @typedef {{ key: string | number, kind: string, text: string, size: number, more: boolean }} Entry
 * @typedef {{ entries: Entry[], total: number }} Level
 */

/**
 * One level of a value as plain entries; also what the worker answers.
 *
 * @param {unknown} value
 * @param {number} from
 * @returns {Level}
 */
export function level(value, from) {
  if (typeof value !== "object" || value === null) return { entries: [entry("", value)], total: 1 };
  const keys = Array.isArray(value) ? value.keys() : Object.keys(value);
  const all = [...keys];
  const some = all.slice(from, from + AT_ONCE);
  return {
    total: all.length,
    entries: some.map((key) => entry(key, /** @type {Record<string | number, unknown>} */ (value)[key])),
  };
}

/**
 * @param {string | number} key
 * @param {unknown} value
 * @returns {Entry}
 */
function entry(key, value) {
  if (Array.isArray(value)) return { key, kind: "array", text: value.length ? `[${value.length}]` : "[]", size: value.length, more: false };
  if (typeof value === "object" && value !== null) {
    const keys = Object.keys(value);
    const named = keys.slice(0, NAMED).join(", ");
    const rest = keys.length > NAMED ? `, +${keys.length - NAMED}` : "";
    return { key, kind: "object", text: `{${named.length > LONGEST_NAMES ? keys.length : named + rest}}`, size: keys.length, more: false };
  }
  if (typeof value === "string") {
    const cut = value.length > LONGEST;
    return { key, kind: "string", text: JSON.stringify(cut ? value.slice(0, LONGEST) : value), size: value.length, more: cut };
  }
  return { key, kind: typeof value === "number" ? "number" : "word", text: String(value), size: 0, more: false };
}

/**
 * @param {unknown} value
 * @param {(string | number)[]} path
 */
export function within(value, path) {
  return path.reduce((inner, key) => /** @type {any} */ (inner)[key], value);
}
