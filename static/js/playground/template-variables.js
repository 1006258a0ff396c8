/** Finds the variables of a message template, by the rules of apps/prompts/messages.py. */

/** @typedef {"f-string" | "mustache" | "none"} TemplateFormat */
/** @typedef {{ names: string[], error: string }} TemplateVariables the names in order, and why the template is malformed */

const MUSTACHE_TAG = /\{\{\{?\s*[#^&/!>]?\s*([^{}\s]*)\s*\}?\}\}/g;
const MUSTACHE_VARIABLE = /\{\{\{?\s*[#^&]?\s*([A-Za-z_]\w*)[^{}]*\}?\}\}/g;
const NAME = /^[A-Za-z_]\w*$/;

/**
 * @param {string} text
 * @param {string} format
 * @returns {TemplateVariables}
 */
export function findVariables(text, format) {
  if (format === "mustache") return findMustacheVariables(text);
  if (format === "f-string") return findFStringVariables(text);
  return { names: [], error: "" };
}

/** @param {string} text @returns {TemplateVariables} */
function findMustacheVariables(text) {
  const names = [...new Set([...text.matchAll(MUSTACHE_VARIABLE)].map((match) => match[1] ?? ""))];
  const tagCount = [...text.matchAll(MUSTACHE_TAG)].length;
  const isMalformed = text.split("{{").length - 1 !== tagCount;
  return { names, error: isMalformed ? "A {{ without its }}." : "" };
}

/** @param {string} text @returns {TemplateVariables} */
function findFStringVariables(text) {
  const names = new Set();
  const error = "Braces contain the name of a variable; write {{ for a brace.";
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character !== "{" && character !== "}") continue;
    if (text[at + 1] === character) {
      at++;
      continue;
    }
    if (character === "}") return { names: [...names], error };
    const end = text.indexOf("}", at);
    const field = end < 0 ? "" : text.slice(at + 1, end);
    const name = /^[^!:]*/.exec(field)?.[0] ?? "";
    if (!NAME.test(name) || field.includes("{")) return { names: [...names], error };
    names.add(name);
    at = end;
  }
  return { names: [...names], error: "" };
}
