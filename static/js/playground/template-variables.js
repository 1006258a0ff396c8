/** Finds the variables of a message template, by the rules of apps/prompts/messages.py. */

/** @typedef {"f-string" | "mustache" | "none"} TemplateFormat */
/** @typedef {{ names: string[], error: string }} TemplateVariables the names in order, and why the template is malformed */

// More patterns for spaces would take more than linear time.
const MUSTACHE_TAG = /\{\{\{([^{}]*)\}\}\}|\{\{([^{}]*)\}\}/g;
const MUSTACHE_NAME = /^[#^&]?\s*([A-Za-z_]\w*)/;
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
  const tags = [...text.matchAll(MUSTACHE_TAG)].map((match) => (match[1] ?? match[2] ?? "").trim());
  const names = tags
    .map((tag) => MUSTACHE_NAME.exec(tag)?.[1])
    .filter((name) => name !== undefined);
  const hasSpaces = tags.some(
    (tag) => !tag.startsWith("!") && /\s/.test(tag.replace(/^[#^&/>]/, "").trim()),
  );
  const isMalformed = text.split("{{").length - 1 !== tags.length || hasSpaces;
  return { names: [...new Set(names)], error: isMalformed ? "A {{ without its }}." : "" };
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
