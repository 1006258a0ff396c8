/** The part of a column that calls a deployed agent: its assistant, and a form for the configuration of the run. */
import { createElement } from "./reply-view.js";
import { requestJson } from "./requests.js";

/**
 * @typedef {import("./types.js").AgentChoice} AgentChoice
 * @typedef {{ type?: string | string[], enum?: unknown[], title?: string, description?: string, default?: unknown }} Property
 * @typedef {{ assistant_id: string, name: string, graph_id: string }} Assistant
 */

const MAX_ASSISTANTS = 100;
const NUMBER_TYPES = new Set(["number", "integer"]);

export class AgentForm {
  /** @type {AgentChoice | null} */
  #agent = null;
  /** Whether the fields show the agent. Until then `value` is the stored configuration. */
  #isLoaded = false;
  #problem = "";
  #note = createElement("p", "field-error");
  #hint = createElement(
    "p",
    "muted",
    "The agent's input has no messages: write it as a JSON object into one message.",
  );
  #assistants = document.createElement("select");
  #fields = createElement("div", "play-agent-fields");

  /**
   * @param {HTMLElement} element
   * @param {() => void} onLoad called when the fields are shown, or when that failed
   */
  constructor(element, onLoad) {
    this.element = element;
    this.onLoad = onLoad;
    const label = createElement("label", "play-agent-assistant", "Assistant");
    this.#assistants.className = "input input-small";
    label.append(this.#assistants);
    this.#note.hidden = this.#hint.hidden = true;
    element.replaceChildren(label, this.#fields, this.#hint, this.#note);
    this.#assistants.addEventListener("change", () => {
      if (this.#agent) this.#agent = { ...this.value, assistant: this.#assistants.value };
      this.#loadSchemas();
    });
  }

  /** Show the agent; null hides the form. @param {AgentChoice | null} agent */
  show(agent) {
    this.element.hidden = !agent;
    if (agent?.slug === this.#agent?.slug) return;
    this.#agent = agent && structuredClone(agent);
    this.#isLoaded = false;
    this.#fields.replaceChildren();
    this.#assistants.replaceChildren();
    this.#hint.hidden = true;
    this.#setProblem("");
    if (agent) this.#loadAssistants(agent);
  }

  /** Forget the shown agent, so that the next one is shown anew. */
  reset() {
    this.#agent = null;
    this.#isLoaded = false;
  }

  /** The agent with what the fields say. @returns {AgentChoice} */
  get value() {
    const agent = this.#agent ?? { slug: "", assistant: "", context: {} };
    if (!this.#isLoaded) return agent;
    /** @type {Record<string, unknown>} */
    const context = {};
    for (const field of this.#inputs) {
      const { value } = readField(field);
      if (value !== undefined) context[field.name] = value;
    }
    return { slug: agent.slug, assistant: this.#assistants.value, context };
  }

  /** What hinders a run, in words. */
  get problem() {
    if (this.#problem) return this.#problem;
    if (!this.value.assistant) return "The assistants of the agent are still loading.";
    return this.#inputs.map((field) => readField(field).error).find(Boolean) ?? "";
  }

  get #inputs() {
    return /** @type {HTMLInputElement[]} */ ([
      ...this.#fields.querySelectorAll("input, select, textarea"),
    ]);
  }

  /** @param {string} text */
  #setProblem(text) {
    this.#problem = text;
    this.#note.textContent = text;
    this.#note.hidden = !text;
  }

  /** @param {AgentChoice} agent */
  async #loadAssistants(agent) {
    try {
      const assistants = /** @type {Assistant[]} */ (
        await requestJson(`${agentPath(agent.slug)}/assistants/search`, {
          method: "POST",
          body: { limit: MAX_ASSISTANTS, sort_by: "created_at", sort_order: "asc" },
        })
      );
      if (this.#agent?.slug !== agent.slug) return;
      this.#assistants.replaceChildren(
        ...assistants.map(
          (assistant) =>
            new Option(
              assistant.name === assistant.graph_id
                ? assistant.name
                : `${assistant.name} (${assistant.graph_id})`,
              assistant.assistant_id,
            ),
        ),
      );
      if (!assistants.length) {
        this.#setProblem("The agent has no assistants.");
        this.onLoad();
        return;
      }
      if (agent.assistant) this.#assistants.value = agent.assistant;
      if (!this.#assistants.value) this.#assistants.selectedIndex = 0;
      await this.#loadSchemas();
    } catch (error) {
      this.#fail(agent, error);
    }
  }

  async #loadSchemas() {
    const agent = this.#agent;
    const assistant = this.#assistants.value;
    if (!agent || !assistant) return;
    try {
      const schemas = await requestJson(`${agentPath(agent.slug)}/assistants/${assistant}/schemas`);
      if (this.#agent?.slug !== agent.slug || this.#assistants.value !== assistant) return;
      const input = schemas.input_schema?.properties;
      this.#hint.hidden = !input || "messages" in input;
      const properties = /** @type {Record<string, Property>} */ (
        (schemas.context_schema ?? schemas.config_schema)?.properties ?? {}
      );
      this.#fields.replaceChildren(
        ...Object.entries(properties).map(([name, property]) =>
          createField(name, property, agent.context?.[name]),
        ),
      );
      this.#isLoaded = true;
      this.#setProblem("");
      this.onLoad();
    } catch (error) {
      this.#fail(agent, error);
    }
  }

  /**
   * @param {AgentChoice} agent
   * @param {unknown} error
   */
  #fail(agent, error) {
    if (this.#agent?.slug !== agent.slug) return;
    const text = error instanceof Error ? error.message : String(error);
    this.#setProblem(`The agent is not available: ${text}`);
    this.onLoad();
  }
}

/** @param {string} slug */
export function agentPath(slug) {
  return `/agents/${encodeURIComponent(slug)}`;
}

/**
 * @param {string} name
 * @param {Property} property
 * @param {unknown} value
 */
function createField(name, property, value) {
  const label = createElement("label", "play-variable", property.title ?? name);
  const types = [property.type ?? []].flat();
  const type = types.find((item) => item !== "null");
  const choices = property.enum ?? (type === "boolean" ? [true, false] : null);
  const field = choices
    ? document.createElement("select")
    : type === "string" || NUMBER_TYPES.has(type ?? "")
      ? document.createElement("input")
      : document.createElement("textarea");
  field.className = "input input-small input-mono";
  field.name = name;
  field.title = property.description ?? "";
  if (choices) {
    field.dataset.kind = "choice";
    field.append(
      new Option("default", ""),
      ...choices.map((choice) => new Option(String(choice), JSON.stringify(choice))),
    );
    field.value = value === undefined ? "" : JSON.stringify(value);
  } else if (field instanceof HTMLInputElement) {
    field.dataset.kind = type === "string" ? "text" : "number";
    field.inputMode = type === "string" ? "text" : "decimal";
    field.placeholder = property.default === undefined ? "default" : String(property.default);
    field.value = String(value ?? "");
  } else if (field instanceof HTMLTextAreaElement) {
    field.dataset.kind = "json";
    field.rows = 2;
    field.placeholder = JSON.stringify(property.default ?? null);
    field.value = value === undefined ? "" : JSON.stringify(value, null, 2);
  }
  label.append(field);
  return label;
}

/** @param {HTMLInputElement} field @returns {{ value?: unknown, error: string }} without a value for an empty field */
function readField(field) {
  const text = field.value.trim();
  if (!text) return { error: "" };
  if (field.dataset.kind === "text") return { value: field.value, error: "" };
  try {
    return { value: JSON.parse(text), error: "" };
  } catch {
    const kind = field.dataset.kind === "number" ? "a number" : "valid JSON";
    return { error: `${field.name} is not ${kind}.` };
  }
}
