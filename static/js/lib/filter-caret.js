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
  for (let index = 0; index < caret; index++) {
    const char = text[index] ?? "";
    if (quote) {
      if (char === "\\") index++;
      else if (char === quote) quote = null;
      continue;
    }
    const inner = calls.at(-1);
    if (char === '"' || char === "'") {
      quote = char;
      from = index;
    } else if (char === "(") {
      calls.push({
        call: text.slice(from, index).trim().toLowerCase(),
        argument: 0,
        field: "",
        inList: false,
      });
      from = index + 1;
    } else if (char === ")") {
      calls.pop();
      from = index + 1;
    } else if (char === "[" || char === "]") {
      if (inner) inner.inList = char === "[";
      from = index + 1;
    } else if (char === ",") {
      if (inner && !inner.inList) {
        if (inner.argument === 0)
          inner.field = text
            .slice(from, index)
            .trim()
            .replace(/^["']|["']$/g, "");
        inner.argument += 1;
      }
      from = index + 1;
    } else if (/\s/.test(char) && text.slice(from, index).trim() === "") from = index + 1;
  }
  const inner = calls.at(-1);
  const typed = text.slice(from, caret).replace(/^["']/, "");
  const context = { from, typed, call: inner?.call ?? "", field: inner?.field ?? "" };
  if (!inner || LOGICAL_CALLS.has(inner.call))
    return { ...context, kind: typed.endsWith(")") ? "none" : "call" };
  if (inner.call === "search" && inner.argument === 0) return { ...context, kind: "none" };
  return { ...context, kind: inner.argument === 0 ? "field" : "value" };
}
