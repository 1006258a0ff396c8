/** Parses a filter expression up to the caret and reports whether a call, a field or a value is being typed. */

/**
 * @typedef {{ kind: "call" | "field" | "value" | "none", from: number, typed: string, call: string, field: string }} CaretContext
 */

const LOGICAL_CALLS = new Set(["and", "or", "not"]);

/**
 * @param {string} text
 * @param {number} caret
 * @returns {CaretContext}
 */
export function parseCaretContext(text, caret) {
  /** @type {{ call: string, argument: number, field: string, inList: boolean }[]} */
  const calls = [];
  let from = 0;
  /** @type {string | null} */
  let quote = null;
  for (let at = 0; at < caret; at++) {
    const char = text[at] ?? "";
    if (quote) {
      if (char === "\\") at++;
      else if (char === quote) quote = null;
      continue;
    }
    const inner = calls.at(-1);
    if (char === '"' || char === "'") {
      quote = char;
      from = at;
    } else if (char === "(") {
      calls.push({
        call: text.slice(from, at).trim().toLowerCase(),
        argument: 0,
        field: "",
        inList: false,
      });
      from = at + 1;
    } else if (char === ")") {
      calls.pop();
      from = at + 1;
    } else if (char === "[" || char === "]") {
      if (inner) inner.inList = char === "[";
      from = at + 1;
    } else if (char === ",") {
      if (inner && !inner.inList) {
        if (inner.argument === 0)
          inner.field = text
            .slice(from, at)
            .trim()
            .replace(/^["']|["']$/g, "");
        inner.argument += 1;
      }
      from = at + 1;
    } else if (/\s/.test(char) && text.slice(from, at).trim() === "") from = at + 1;
  }
  const inner = calls.at(-1);
  const typed = text.slice(from, caret).replace(/^["']/, "");
  const context = { from, typed, call: inner?.call ?? "", field: inner?.field ?? "" };
  if (!inner || LOGICAL_CALLS.has(inner.call))
    return { ...context, kind: typed.endsWith(")") ? "none" : "call" };
  if (inner.call === "search" && inner.argument === 0) return { ...context, kind: "none" };
  return { ...context, kind: inner.argument === 0 ? "field" : "value" };
}
