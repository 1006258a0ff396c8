/**
 * The query language in the browser: splits a query into clauses and finds the faults that need no server.
 * The server parses the query again, with apps/trace_store/filters/query_text.py.
 */

/**
 * @typedef {{ name: string, kind: string, example: string, about: string, values: string[] }} QueryField
 * @typedef {{ fields: QueryField[], others: string[] }} QueryLanguage
 * @typedef {{ start: number, end: number, field: string, valueStart: number, isNegative: boolean }} QueryToken
 * @typedef {{ start: number, end: number, message: string, meant: string }} QueryFault
 */

const FIELD = /^([A-Za-z_][\w-]*(?:\.(?:[\w$@/-]+|"(?:[^"\\]|\\.)*"))*):/;
const KEYED = /^(metadata|input|output|feedback)\../;
const DURATION = /^(?:\d+(?:\.\d*)?|\.\d+)\s*(?:us|ms|s|min|m|h|d|[a-z]+)?(?:[\d.]+[a-z]+)*$/i;
const NUMBER = /^[+-]?(?:[\d,_]+(?:\.\d*)?|\.\d+)[kmb]?$/i;
/** @type {Record<string, { pattern: RegExp, expected: string }>} */
const VALUES = {
  duration: { pattern: DURATION, expected: "takes a duration, such as 2s or 500ms" },
  number: { pattern: NUMBER, expected: "takes a number, such as 400 or 4k" },
  money: {
    pattern: new RegExp(`^\\$?${NUMBER.source.slice(1)}`, "i"),
    expected: "takes an amount in US dollars, such as $0.01",
  },
  boolean: { pattern: /^(?:true|false|yes|no)$/i, expected: "is true or false" },
};
const SYNONYMS = new Map([
  ["failed", "error"],
  ["failure", "error"],
  ["ok", "success"],
  ["canceled", "cancelled"],
]);

/**
 * Splits the text at spaces outside of quotes and parentheses.
 *
 * @param {string} text
 * @returns {QueryToken[]}
 */
export function splitQuery(text) {
  /** @type {QueryToken[]} */
  const tokens = [];
  let index = 0;
  while (index < text.length) {
    if (/\s/.test(text[index] ?? "")) {
      index++;
      continue;
    }
    const start = index;
    let depth = 0;
    let isQuoted = false;
    for (; index < text.length; index++) {
      const character = text[index] ?? "";
      if (isQuoted) {
        if (character === "\\") index++;
        else if (character === '"') isQuoted = false;
        continue;
      }
      if (character === '"') isQuoted = true;
      else if (character === "(" || character === "[") depth++;
      else if (character === ")" || character === "]") depth--;
      else if (depth <= 0 && /\s/.test(character)) break;
    }
    const isNegative = text[start] === "-";
    const match = FIELD.exec(text.slice(start + Number(isNegative), index));
    const field = match?.[1] ?? "";
    const valueStart = match ? start + Number(isNegative) + match[0].length : start;
    tokens.push({ start, end: Math.min(index, text.length), field, valueStart, isNegative });
  }
  return tokens;
}

/**
 * @param {string} text
 * @param {QueryLanguage} language
 * @param {number} caret the clause that ends here is still being typed; -1 if the query is finished
 * @returns {QueryFault | null} the first fault
 */
export function findFault(text, language, caret) {
  const known = new Map(language.fields.map((field) => [field.name, field]));
  for (const token of splitQuery(text)) {
    const piece = text.slice(token.start, token.end);
    const isTyped = token.end === caret;
    if (!isTyped && (piece.match(/(?<!\\)"/g)?.length ?? 0) % 2)
      return fault(token.start, token.end, "This quotation mark is not closed.");
    if (
      !isTyped &&
      piece.replace(/"(?:[^"\\]|\\.)*"/g, "").split("(").length >
        piece.replace(/"(?:[^"\\]|\\.)*"/g, "").split(")").length
    )
      return fault(token.start, token.end, "This parenthesis is not closed.");
    if (!token.field) continue;
    const problem = checkField(text, token, language, known, isTyped);
    if (problem) return problem;
  }
  return null;
}

/**
 * @param {string} text
 * @param {QueryToken} token
 * @param {QueryLanguage} language
 * @param {Map<string, QueryField>} known
 * @param {boolean} isTyped
 * @returns {QueryFault | null}
 */
function checkField(text, token, language, known, isTyped) {
  const { field } = token;
  const definition = known.get(field);
  if (!definition) {
    if (language.others.includes(field) || KEYED.test(field)) return null;
    const meant = closest(field.toLowerCase(), [...known.keys()]);
    const start = token.start + Number(token.isNegative);
    const hint = meant ? `Did you mean ${meant}?` : `Metadata is metadata.${field}.`;
    return fault(start, token.valueStart - 1, `Unknown field ${field}. ${hint}`, meant);
  }
  const value = text.slice(token.valueStart, token.end);
  if (!value && !isTyped && text.slice(token.end).trim() === "")
    return fault(
      token.start,
      token.end,
      `${field} needs a value, such as ${field}:${definition.example}.`,
    );
  if (!value || isTyped || /[("[*]/.test(value)) return null;
  const parts = value
    .replace(/^(?:>=|<=|=>|=<|!=|>|<|=)/, "")
    .split("..")
    .filter(Boolean);
  const check = VALUES[definition.kind];
  if (check && parts.some((part) => !check.pattern.test(part)))
    return fault(token.valueStart, token.end, `${field} ${check.expected}.`);
  const word = value.toLowerCase();
  if (definition.values.length && !definition.values.includes(word) && word !== "pending") {
    const meant = SYNONYMS.get(word) ?? closest(word, definition.values);
    const list = `${definition.values.slice(0, -1).join(", ")} or ${definition.values.at(-1)}`;
    const isValue = definition.values.includes(meant);
    const hint = isValue ? ` Did you mean ${meant}?` : "";
    return fault(token.valueStart, token.end, `${field} is ${list}.${hint}`, isValue ? meant : "");
  }
  return null;
}

/**
 * @param {number} start
 * @param {number} end
 * @param {string} message
 * @param {string} meant
 * @returns {QueryFault}
 */
function fault(start, end, message, meant = "") {
  return { start, end, message, meant };
}

/**
 * @param {string} word
 * @param {string[]} candidates
 */
function closest(word, candidates) {
  const limit = word.length < 5 ? 1 : 2;
  let best = "";
  let bestDistance = limit + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/**
 * @param {string} left
 * @param {string} right
 */
function editDistance(left, right) {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let from = 1; from <= left.length; from++) {
    const next = [from];
    for (let to = 1; to <= right.length; to++) {
      const cost = left[from - 1] === right[to - 1] ? 0 : 1;
      const shorter = Math.min((next[to - 1] ?? 0) + 1, (row[to] ?? 0) + 1);
      next[to] = Math.min(shorter, (row[to - 1] ?? 0) + cost);
    }
    row = next;
  }
  return row[right.length] ?? 0;
}
