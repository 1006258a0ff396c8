/** Writes a column as Python code that does the same. */
import { canonicalJson, listVariables, PARAMETERS, readAttachments, readText } from "./settings.js";
import { findVariables } from "./template-variables.js";

/**
 * @typedef {import("./types.js").Block} Block
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Setting} Setting
 */

const ROLES = /** @type {Record<string, string>} */ ({ ai: "assistant", human: "user" });
const LANGCHAIN_PROVIDERS = /** @type {Record<string, string>} */ ({ google: "google_genai" });
const ANY_OBJECT = canonicalJson({ type: "object" });
const TOOL_CHOICES = new Set(["auto", "none", "required"]);

/**
 * Return code that sends the messages with the client of OpenAI or of an address that speaks its protocol, other providers by
 * LangChain's common interface, and agents by the client of LangGraph.
 *
 * @param {Setting} setting
 * @param {Record<string, unknown>} values of the variables
 */
export function toPython(setting, values) {
  const { names, lists } = listVariables(setting);
  const used = [...names, ...lists];
  const variables = used.length
    ? `variables = ${toValue(Object.fromEntries(used.map((name) => [name, values[name] ?? ""])))}\n\n`
    : "";
  const lines = setting.messages.map((message) => `        ${messageCode(message, setting)},\n`);
  const messages = `[\n${lines.join("")}    ]`;
  if (setting.agent) return agentCode(setting.agent, variables, messages);
  const { provider } = setting.model;
  return provider === "openai" || provider === "openai_compatible"
    ? openaiCode(setting, variables, messages)
    : langchainCode(setting, variables, messages);
}

/**
 * @param {NonNullable<Setting["agent"]>} agent
 * @param {string} variables
 * @param {string} messages
 */
function agentCode({ slug, assistant, context }, variables, messages) {
  return (
    `from langgraph_sdk import get_sync_client\n\n${variables}` +
    `client = get_sync_client(url=${toValue(`${location.origin}/agents/${slug}`)})\n` +
    `values = client.runs.wait(\n    None,\n    ${toValue(assistant)},\n` +
    `    input={"messages": ${messages}},\n    context=${toValue(context)},\n)\nprint(values)\n`
  );
}

/**
 * @param {Setting} setting
 * @param {string} variables
 * @param {string} messages
 */
function openaiCode(setting, variables, messages) {
  const { model, base_url: address } = setting.model;
  /** @type {Record<string, unknown>} */
  const options = { model, messages: null, ...readParameters(setting) };
  if (setting.tools.length) options.tools = listTools(setting);
  const choice = options.tool_choice;
  if (typeof choice === "string" && !TOOL_CHOICES.has(choice))
    options.tool_choice = { type: "function", function: { name: choice } };
  if (setting.response_schema)
    options.response_format =
      canonicalJson(setting.response_schema) === ANY_OBJECT
        ? { type: "json_object" }
        : {
            type: "json_schema",
            json_schema: { name: "response", schema: setting.response_schema },
          };
  const code = Object.entries(options).map(
    ([name, value]) => `    ${name}=${name === "messages" ? messages : toValue(value)},\n`,
  );
  return (
    `from openai import OpenAI\n\n${variables}` +
    `client = OpenAI(${address ? `base_url=${toValue(address)}` : ""})\n` +
    `completion = client.chat.completions.create(\n${code.join("")})\n` +
    "print(completion.choices[0].message)\n"
  );
}

/**
 * @param {Setting} setting
 * @param {string} variables
 * @param {string} messages
 */
function langchainCode(setting, variables, messages) {
  const { provider, model } = setting.model;
  const { tool_choice: choice, ...parameters } = readParameters(setting);
  const code = Object.entries(parameters).map(
    ([name, value]) => `    ${name}=${toValue(value)},\n`,
  );
  const bound = setting.tools.length
    ? `model = model.bind_tools(${toValue(listTools(setting))}${choice ? `, tool_choice=${toValue(choice)}` : ""})\n`
    : "";
  const structured = setting.response_schema
    ? `model = model.with_structured_output(${toValue({ title: "response", ...Object(setting.response_schema) })})\n`
    : "";
  return (
    `from langchain.chat_models import init_chat_model\n\n${variables}` +
    `model = init_chat_model(\n    ${toValue(model)},\n` +
    `    model_provider=${toValue(LANGCHAIN_PROVIDERS[provider] ?? provider)},\n${code.join("")})\n` +
    `${bound}${structured}reply = model.invoke(${messages})\nprint(reply)\n`
  );
}

/** @param {Setting} setting @returns {Record<string, unknown>} */
function readParameters(setting) {
  return Object.fromEntries(
    PARAMETERS.map((name) => [name, setting.model[name]]).filter(
      ([, value]) =>
        value !== null && value !== undefined && !(Array.isArray(value) && !value.length),
    ),
  );
}

/** @param {Setting} setting */
function listTools(setting) {
  return setting.tools.map(({ name, description, schema }) => ({
    type: "function",
    function: { name, description, parameters: schema },
  }));
}

/**
 * @param {Message} message
 * @param {Setting} setting
 */
function messageCode(message, setting) {
  if (message.role === "placeholder") return `*variables[${toValue(readText(message))}]`;
  const text = textCode(readText(message), setting.template_format);
  const attachments = readAttachments(message);
  const content = attachments.length
    ? `[{"type": "text", "text": ${text}}, ${attachments.map(blockCode).join(", ")}]`
    : text;
  const fields = [
    `"role": ${toValue(ROLES[message.role] ?? message.role)}`,
    `"content": ${content}`,
  ];
  if (message.tool_call_id) fields.push(`"tool_call_id": ${toValue(message.tool_call_id)}`);
  if (message.tool_calls?.length) {
    const calls = message.tool_calls.map(({ id, name, arguments: args }) => ({
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(args) },
    }));
    fields.push(`"tool_calls": ${toValue(calls)}`);
  }
  return `{${fields.join(", ")}}`;
}

/**
 * Return a text with its variables filled in by code; an f-string's escaped braces are those of `format`.
 *
 * @param {string} text
 * @param {string} format
 */
function textCode(text, format) {
  const { names } = findVariables(text, format);
  if (format === "f-string")
    return names.length
      ? `${toValue(text)}.format(**variables)`
      : toValue(text.replaceAll("{{", "{").replaceAll("}}", "}"));
  const replaced = names.map(
    (name) => `.replace(${toValue(`{{${name}}}`)}, variables[${toValue(name)}])`,
  );
  return toValue(format === "mustache" ? simplifyTags(text) : text) + replaced.join("");
}

/** Write `{{ name }}`, `{{{name}}}` and `{{& name}}` as `{{name}}`. @param {string} text */
function simplifyTags(text) {
  return text.replaceAll(/\{\{\{\s*(\w+)\s*\}\}\}|\{\{&?\s*(\w+)\s*\}\}/g, "{{$1$2}}");
}

/** @param {Block} block */
function blockCode(block) {
  const url = block.url ?? `data:${block.mime_type};base64,${block.data}`;
  return toValue(
    block.type === "image"
      ? { type: "image_url", image_url: { url } }
      : { type: "file", file: { filename: block.filename ?? "file", file_data: url } },
  );
}

/** @param {unknown} value @returns {string} */
function toValue(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(toValue).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, item]) => `${JSON.stringify(key)}: ${toValue(item)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}
