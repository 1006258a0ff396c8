/** Where in a filter's text the caret is: at a call, at a field, or at a value of a field. */

/**
 * @typedef {{ kind: "call" | "field" | "value" | "none", from: number, typed: string, call: string, field: string }} Place
 */

const COMBINING = new Set(["and", "or", "not"]);

/**
 * @param {string} text
 * @param {number} caret
 * @returns {Place}
 */
export function place(text, caret) {
  /** @type {{ call: string, argument: number, field: string, inList: boolean }[]} */
  const calls = [];
  let from = 0;
  /** @type {string | null} */
  let quote = null;
  for (let at = 0; at < caret; at++) {
    const letter = text[at] ?? "";
    if (quote) {
      if (letter === "\\") at++;
      else if (letter === quote) quote = null;
      continue;
    }
    const inner = calls.at(-1);
    if (letter === '"' || letter === "'") {
      quote = letter;
      from = at;
    } else if (letter === "(") {
      calls.push({ call: text.slice(from, at).trim().toLowerCase(), argument: 0, field: "", inList: false });
      from = at + 1;
    } else if (letter === ")") {
      calls.pop();
      from = at + 1;
    } else if (letter === "[" || letter === "]") {
      if (inner) inner.inList = letter === "[";
      from = at + 1;
    } else if (letter === ",") {
      if (inner && !inner.inList) {
        if (inner.argument === 0) inner.field = text.slice(from, at).trim().replace(/^["']|["']$/g, "");
        inner.argument += 1;
      }
      from = at + 1;
    } else if (/\s/.test(letter) && text.slice(from, at).trim() === "") from = at + 1;
  }
  const inner = calls.at(-1);
  const typed = text.slice(from, caret).replace(/^["']/, "");
  const none = { from, typed, call: inner?.call ?? "", field: inner?.field ?? "" };
  if (!inner || COMBINING.has(inner.call)) return { ...none, kind: typed.endsWith(")") ? "none" : "call" };
  if (inner.call === "search" && inner.argument === 0) return { ...none, kind: "none" };
  return { ...none, kind: inner.argument === 0 ? "field" : "value" };
}
