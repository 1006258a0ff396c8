/** Describes a JSON value one level at a time for `<json-view>`. */

const PAGE_SIZE = 100;
const MAX_STRING_LENGTH = 2000;
const MAX_PREVIEW_KEYS = 5;
const MAX_PREVIEW_LENGTH = 90;

/**
 * @typedef {{ key: string | number, kind: string, text: string, size: number, truncated: boolean }} Entry
 * @typedef {{ entries: Entry[], total: number }} Level
 */

/**
 * Return one level of a value as serialisable entries; the worker posts the same objects.
 *
 * @param {unknown} value
 * @param {number} from
 * @returns {Level}
 */
export function describeLevel(value, from) {
  if (typeof value !== "object" || value === null)
    return { entries: [describeEntry("", value)], total: 1 };
  const keys = Array.isArray(value) ? value.keys() : Object.keys(value);
  const allKeys = [...keys];
  const pageKeys = allKeys.slice(from, from + PAGE_SIZE);
  return {
    total: allKeys.length,
    entries: pageKeys.map((key) =>
      describeEntry(key, /** @type {Record<string | number, unknown>} */ (value)[key]),
    ),
  };
}

/**
 * @param {string | number} key
 * @param {unknown} value
 * @returns {Entry}
 */
function describeEntry(key, value) {
  if (Array.isArray(value))
    return {
      key,
      kind: "array",
      text: value.length ? `[${value.length}]` : "[]",
      size: value.length,
      truncated: false,
    };
  if (typeof value === "object" && value !== null) {
    const keys = Object.keys(value);
    const preview = keys.slice(0, MAX_PREVIEW_KEYS).join(", ");
    const suffix = keys.length > MAX_PREVIEW_KEYS ? `, +${keys.length - MAX_PREVIEW_KEYS}` : "";
    return {
      key,
      kind: "object",
      text: `{${preview.length > MAX_PREVIEW_LENGTH ? keys.length : preview + suffix}}`,
      size: keys.length,
      truncated: false,
    };
  }
  if (typeof value === "string") {
    const isTruncated = value.length > MAX_STRING_LENGTH;
    return {
      key,
      kind: "string",
      text: JSON.stringify(isTruncated ? value.slice(0, MAX_STRING_LENGTH) : value),
      size: value.length,
      truncated: isTruncated,
    };
  }
  return {
    key,
    kind: typeof value === "number" ? "number" : "literal",
    text: String(value),
    size: 0,
    truncated: false,
  };
}

/**
 * @param {unknown} value
 * @param {(string | number)[]} path
 */
export function resolvePath(value, path) {
  return path.reduce((current, key) => /** @type {any} */ (current)[key], value);
}
