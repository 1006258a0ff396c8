/** Reads, compares and exports the setting of a column. */
import { findVariables } from "./template-variables.js";

/**
 * @typedef {import("./types.js").Setting} Setting
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Block} Block
 * @typedef {import("./types.js").Recorded} Recorded
 * @typedef {import("./types.js").Tool} Tool
 * @typedef {import("./types.js").AgentChoice} AgentChoice
 */

export const LETTERS = "ABCDEFGHIJ";
/** The parameters of a model, in the order of their fields. */
export const PARAMETERS = [
  "temperature",
  "top_p",
  "max_tokens",
  "stop",
  "seed",
  "frequency_penalty",
  "presence_penalty",
  "reasoning_effort",
  "thinking_budget",
  "tool_choice",
];

/** Return the setting with the fields that the server leaves out. @param {Partial<Setting>} setting @returns {Setting} */
export function completeSetting(setting) {
  return {
    name: setting.name || "Draft",
    prompt: setting.prompt ?? null,
    template_format: setting.template_format ?? "f-string",
    messages: (setting.messages ?? []).map((message) => ({
      ...message,
      content: joinContent(readText(message), readAttachments(message)),
    })),
    tools: (setting.tools ?? []).map((tool) => ({
      name: tool.name,
      description: tool.description ?? "",
      schema: tool.schema ?? { type: "object", properties: {} },
      result: tool.result ?? null,
      target: tool.target ?? null,
    })),
    response_schema: setting.response_schema ?? null,
    model: { ...(setting.model ?? { provider: "", model: "" }) },
    agent: setting.agent ? completeAgent(setting.agent) : null,
  };
}

/** @param {Partial<AgentChoice> & { slug: string }} agent @returns {AgentChoice} */
function completeAgent({ slug, assistant = "", context = {} }) {
  return { slug, assistant, context };
}

/** Return the text of a message, without images and files. @param {Message | null | undefined} message */
export function readText(message) {
  const content = message?.content ?? "";
  if (typeof content === "string") return content;
  return content.map((block) => (block.type === "text" ? (block.text ?? "") : "")).join("");
}

/** Return the images and files of a message. @param {Message} message @returns {Block[]} */
export function readAttachments(message) {
  const content = message.content ?? "";
  return typeof content === "string" ? [] : content.filter((block) => block.type !== "text");
}

/** @param {string} text @param {Block[]} attachments @returns {string | Block[]} */
export function joinContent(text, attachments) {
  return attachments.length ? [...(text ? [{ type: "text", text }] : []), ...attachments] : text;
}

/**
 * Return the variables of the setting, in order; lists are the names of placeholders.
 *
 * @param {Setting} setting
 * @returns {{ names: string[], lists: string[] }}
 */
export function listVariables(setting) {
  const names = new Set();
  const lists = new Set();
  for (const message of setting.messages) {
    if (message.role === "placeholder") lists.add(readText(message).trim());
    else
      for (const name of findVariables(readText(message), setting.template_format).names)
        names.add(name);
  }
  lists.delete("");
  return { names: [...names].filter((name) => !lists.has(name)), lists: [...lists] };
}

/** Return a text that is equal for equal settings. @param {unknown} value @returns {string} */
export function canonicalJson(value) {
  return JSON.stringify(value, (_, item) => {
    if (item === null || item === undefined) return undefined;
    if (typeof item !== "object" || Array.isArray(item)) return item;
    return Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** Return the tools as commits have them: how a result is found is no part of the prompt. @param {Tool[]} tools */
function committedTools(tools) {
  return tools.map(({ name, description, schema }) => ({ name, description, schema }));
}

/** Return what a commit of the setting contains. @param {Setting} setting */
export function committedPart({ messages, template_format, tools, response_schema, model }) {
  return canonicalJson({
    messages,
    template_format,
    tools: committedTools(tools),
    response_schema,
    model,
  });
}

/** Return the messages as one text, each below its role. @param {Setting} setting */
export function messagesText(setting) {
  return setting.messages.map((message) => `${message.role}: ${readText(message)}`).join("\n\n");
}

/**
 * The parts of a setting that two authors change independently.
 *
 * @typedef {{ name: string, read: (setting: Setting) => unknown, write: (setting: Setting, from: Setting) => void }} Part
 * @param {Setting[]} settings whose messages are parts one by one only if all have the same number
 * @returns {Part[]}
 */
function listParts(settings) {
  const counts = new Set(settings.map((setting) => setting.messages.length));
  /** @type {Part[]} */
  const messages =
    counts.size === 1
      ? (settings[0]?.messages ?? []).map((_, index) => ({
          name: `message ${index + 1}`,
          read: (setting) => setting.messages[index],
          write: (setting, from) => {
            const message = from.messages[index];
            if (message) setting.messages[index] = message;
          },
        }))
      : [
          {
            name: "messages",
            read: (setting) => setting.messages,
            write: (setting, from) => {
              setting.messages = from.messages;
            },
          },
        ];
  const model = ["provider", "model", "base_url", "api_version"];
  return [
    ...messages,
    {
      name: "template format",
      read: (setting) => setting.template_format,
      write: (setting, from) => {
        setting.template_format = from.template_format;
      },
    },
    {
      name: "tools",
      read: (setting) => committedTools(setting.tools),
      write: (setting, from) => {
        const known = new Map(setting.tools.map((tool) => [tool.name, tool]));
        setting.tools = from.tools.map((tool) => ({
          ...tool,
          result: known.get(tool.name)?.result ?? tool.result,
          target: known.get(tool.name)?.target ?? tool.target,
        }));
      },
    },
    {
      name: "response schema",
      read: (setting) => setting.response_schema,
      write: (setting, from) => {
        setting.response_schema = from.response_schema;
      },
    },
    ...[model, ...PARAMETERS.map((name) => [name])].map((names) => ({
      name: names.length > 1 ? "model" : formatName(names[0] ?? ""),
      read: (/** @type {Setting} */ setting) => names.map((name) => setting.model[name]),
      write: (/** @type {Setting} */ setting, /** @type {Setting} */ from) => {
        for (const name of names) setting.model[name] = from.model[name];
      },
    })),
  ];
}

/** @typedef {{ name: string, take: (merged: Setting, from?: Setting) => void }} Conflict a part that both changed */

/**
 * Apply the changes of both authors to their common base. Where both changed a part, `mine` stays, and the part is a conflict,
 * which `take` replaces by the one of `theirs` or of another setting.
 *
 * @param {Setting} base
 * @param {Setting} mine
 * @param {Setting} theirs
 * @returns {{ merged: Setting, taken: string[], conflicts: Conflict[] }}
 */
export function mergeSettings(base, mine, theirs) {
  const merged = structuredClone(mine);
  const taken = [];
  const conflicts = [];
  for (const part of listParts([base, mine, theirs])) {
    const [old, own, other] = [base, mine, theirs].map((setting) =>
      canonicalJson({ value: part.read(setting) }),
    );
    if (other === old || other === own) continue;
    if (own === old) {
      part.write(merged, theirs);
      taken.push(part.name);
    } else
      conflicts.push({
        name: part.name,
        take: (/** @type {Setting} */ setting, from = theirs) => part.write(setting, from),
      });
  }
  return { merged, taken, conflicts };
}

/**
 * Name the differences of two settings, such as `temperature 0.2 → 0.7`.
 *
 * @param {Setting} before
 * @param {Setting} after
 * @returns {string[]}
 */
export function describeDifferences(before, after) {
  const differences = [];
  if (before.agent?.slug !== after.agent?.slug)
    differences.push(`${before.agent?.slug ?? "model"} → ${after.agent?.slug ?? "model"}`);
  else if (canonicalJson(before.agent) !== canonicalJson(after.agent))
    differences.push("configuration changed");
  if (before.model.model !== after.model.model || before.model.provider !== after.model.provider)
    differences.push(`${before.model.model} → ${after.model.model}`);
  for (const name of PARAMETERS) {
    const [old, value] = [before.model[name], after.model[name]];
    if (canonicalJson({ value: old }) !== canonicalJson({ value }))
      differences.push(`${formatName(name)} ${formatValue(old)} → ${formatValue(value)}`);
  }
  if (before.template_format !== after.template_format)
    differences.push(`format ${before.template_format} → ${after.template_format}`);
  const count = Math.max(before.messages.length, after.messages.length);
  const changed = Array.from({ length: count }, (_, index) => index).filter(
    (index) => canonicalJson(before.messages[index]) !== canonicalJson(after.messages[index]),
  );
  if (changed.length === 1) differences.push(`message ${(changed[0] ?? 0) + 1} changed`);
  else if (changed.length) differences.push(`${changed.length} messages changed`);
  if (canonicalJson(before.tools) !== canonicalJson(after.tools)) differences.push("tools changed");
  if (canonicalJson(before.response_schema) !== canonicalJson(after.response_schema))
    differences.push("response schema changed");
  return differences;
}

/** @param {string} name */
export function formatName(name) {
  return name.replaceAll("_", " ");
}

/** @param {unknown} value */
function formatValue(value) {
  if (value === null || value === undefined || value === "") return "default";
  return typeof value === "string" ? value : JSON.stringify(value);
}
