/**
 * <prompt-column data-letter="A">…</prompt-column>: the prompt, model, tools and response schema of one column of the playground.
 * `fill` shows a setting, `setting` reads it; each change sends `setting-change`, each button of the menu `column-action`.
 */
import { createIcon } from "../lib/icons.js";
import {
  committedPart,
  completeSetting,
  joinContent,
  PARAMETERS,
  readAttachments,
  readText,
} from "../playground/settings.js";
import { AgentForm } from "../playground/agent-form.js";
import { listAgentTools } from "../playground/tool-calls.js";
import { findVariables } from "../playground/template-variables.js";
import "./template-field.js";

/**
 * @typedef {import("../playground/types.js").Setting} Setting
 * @typedef {import("../playground/types.js").Message} Message
 * @typedef {import("../playground/types.js").Block} Block
 * @typedef {import("../playground/types.js").Tool} Tool
 * @typedef {import("../playground/types.js").Catalogue} Catalogue
 * @typedef {import("../playground/types.js").Provider} Provider
 */

const MAX_FILE_BYTES = 1_000_000;
const INTEGERS = new Set(["max_tokens", "seed", "thinking_budget"]);
const NUMBERS = new Set(["temperature", "top_p", "frequency_penalty", "presence_penalty"]);
const MODEL_FIELDS = ["model", "base_url", "api_version"];

export class PromptColumn extends HTMLElement {
  /** @type {Catalogue | null} */
  #catalogue = null;
  /** @type {AgentForm | null} */
  #agentForm = null;
  /** The model of a column that calls an agent. @type {Setting["model"]} */
  #unusedModel = { provider: "", model: "" };
  /** @type {Setting["prompt"]} */
  #prompt = null;
  #title = "Draft";
  /** The fields of the model that the page has no input for. @type {Record<string, unknown>} */
  #otherModelFields = {};
  /** @type {WeakMap<Element, Block[]>} */
  #attachments = new WeakMap();
  /** The fields of a recorded reply that have no input, such as its thinking. @type {WeakMap<Element, Partial<Message>>} */
  #otherFields = new WeakMap();
  /** The tools of the agents that rows of tools call. @type {WeakMap<Element, import("../playground/tool-calls.js").AgentTool[]>} */
  #agentTools = new WeakMap();
  /** The content of the commit from which the setting comes. @type {string | null} */
  #baseline = null;
  /** @type {HTMLElement | null} */
  #dragged = null;

  connectedCallback() {
    this.addEventListener("input", this.#handleInput);
    this.addEventListener("click", this.#handleClick);
    this.addEventListener("keydown", this.#handleKeydown);
    this.addEventListener("dragstart", this.#handleDragStart);
    this.addEventListener("dragover", this.#handleDragOver);
    this.addEventListener("dragend", this.#handleDragEnd);
  }

  disconnectedCallback() {
    this.removeEventListener("input", this.#handleInput);
    this.removeEventListener("click", this.#handleClick);
    this.removeEventListener("keydown", this.#handleKeydown);
    this.removeEventListener("dragstart", this.#handleDragStart);
    this.removeEventListener("dragover", this.#handleDragOver);
    this.removeEventListener("dragend", this.#handleDragEnd);
  }

  get letter() {
    return this.dataset.letter ?? "A";
  }

  /** @param {string} letter */
  set letter(letter) {
    this.dataset.letter = letter;
    this.ariaLabel = `Column ${letter}`;
    this.#find("[data-letter-mark]").textContent = letter;
    this.#find("[data-letter-text]").textContent = letter;
    this.#find("[data-run-key]").textContent = `Alt ${letter}`;
    this.#find("[data-results]").ariaLabel = `Results of column ${letter}`;
  }

  /** @returns {HTMLElement} */
  get results() {
    return this.#find("[data-results]");
  }

  /** @returns {Setting["prompt"]} */
  get prompt() {
    return this.#prompt;
  }

  /** The provider of the model, or null if the catalogue does not have it. */
  get provider() {
    const [id] = this.#modelChoice;
    return this.#catalogue?.providers.find((provider) => provider.id === id) ?? null;
  }

  /** @param {string} selector */
  #find(selector) {
    return /** @type {HTMLElement} */ (this.querySelector(selector));
  }

  /** @param {string} selector */
  #field(selector) {
    return /** @type {HTMLInputElement} */ (this.querySelector(selector));
  }

  /**
   * Show the setting, from which the server may have left out empty fields.
   *
   * @param {Partial<Setting>} given
   * @param {Catalogue} catalogue
   */
  fill(given, catalogue) {
    const setting = completeSetting(given);
    this.#catalogue = catalogue;
    this.#prompt = setting.prompt;
    this.#title = setting.name;
    this.#baseline = null;
    this.#field("[data-format]").value = setting.template_format;
    this.#find("[data-messages]").replaceChildren();
    for (const message of setting.messages) this.#addMessage(message);
    this.#find("[data-tools]").replaceChildren();
    for (const tool of setting.tools) this.#addTool(tool);
    const schema = setting.response_schema;
    this.#field("[data-schema]").value = schema ? JSON.stringify(schema, null, 2) : "";
    this.#fillModel(setting.model);
    this.#agentForm ??= new AgentForm(this.#find("[data-agent]"), () => this.#update());
    this.#agentForm.reset();
    if (setting.agent) this.#selectAgent(setting.agent, setting.model);
    this.#update();
  }

  /**
   * @param {NonNullable<Setting["agent"]>} agent
   * @param {Setting["model"]} model
   */
  #selectAgent(agent, model) {
    const menu = this.#field("[data-model]");
    this.#unusedModel = model;
    menu.value = `agent ${agent.slug}`;
    if (!menu.value) {
      menu.prepend(new Option(`${agent.slug}, not available here`, `agent ${agent.slug}`));
      menu.value = `agent ${agent.slug}`;
    }
    this.#agentForm?.show(agent);
  }

  /** The agent that is called in place of a model. @returns {Setting["agent"]} */
  get agent() {
    const [kind, slug = ""] = this.#modelChoice;
    if (kind !== "agent") return null;
    const agent = this.#agentForm?.value;
    return agent?.slug === slug ? agent : { slug, assistant: "", context: {} };
  }

  /** Continue the prompt with messages of a reply, whose braces are no variables. @param {Message[]} messages */
  addMessages(messages) {
    const isFString = this.#field("[data-format]").value === "f-string";
    const escape = (/** @type {string} */ text) =>
      isFString ? text.replaceAll("{", "{{").replaceAll("}", "}}") : text;
    const rows = messages.map((message) =>
      this.#addMessage({ ...message, content: escape(readText(message)) }),
    );
    this.#announce();
    const last = rows.at(-1);
    if (last) selectField(last, "[data-message-text]").focus();
  }

  /** State what the setting would be without changes. @param {Partial<Setting>} setting */
  setBaseline(setting) {
    this.#baseline = committedPart(completeSetting(setting));
    this.#update();
  }

  /** Take the setting as committed. @param {NonNullable<Setting["prompt"]>} prompt */
  markCommitted(prompt) {
    this.#prompt = prompt;
    this.#title = prompt.repo;
    this.setBaseline(this.setting);
  }

  /** @param {Setting["model"]} model */
  #fillModel(model) {
    const menu = this.#field("[data-model]");
    menu.value = `${model.provider} ${model.model}`;
    if (!menu.value) menu.value = `${model.provider} `;
    if (!menu.value) {
      const option = document.createElement("option");
      option.value = `${model.provider} ${model.model}`;
      option.textContent = `${model.model || model.provider}, not available here`;
      menu.prepend(option);
      menu.value = option.value;
    }
    for (const name of MODEL_FIELDS)
      this.#field(`[data-model-field="${name}"]`).value = String(model[name] ?? "");
    for (const name of PARAMETERS) {
      const value = model[name];
      this.#field(`[data-parameter="${name}"]`).value = Array.isArray(value)
        ? value.map((item) => JSON.stringify(item).slice(1, -1)).join(", ")
        : String(value ?? "");
    }
    const known = new Set([...PARAMETERS, ...MODEL_FIELDS, "provider"]);
    this.#otherModelFields = Object.fromEntries(
      Object.entries(model).filter(([name]) => !known.has(name)),
    );
  }

  /** The provider and the model of the menu; the model is empty for one that is typed. */
  get #modelChoice() {
    const value = this.#field("[data-model]").value;
    const space = value.indexOf(" ");
    return [value.slice(0, space), value.slice(space + 1)];
  }

  /** @returns {Setting} */
  get setting() {
    return {
      name: this.#title,
      prompt: this.#prompt,
      template_format: this.#field("[data-format]").value,
      messages: this.#rows.map((row) => this.#readMessage(row)),
      tools: this.#toolRows.map((row) => this.#readTool(row)),
      response_schema: parseJson(this.#field("[data-schema]").value).value ?? null,
      model: this.agent ? this.#unusedModel : this.#readModel(),
      agent: this.agent,
    };
  }

  /** What hinders a run, in words; empty if nothing does. @returns {string[]} */
  get problems() {
    const problems = this.#rows.map((row) => this.#checkMessage(row));
    problems.push(...this.#toolRows.map((row) => this.#checkTool(row)));
    problems.push(this.#checkSchema());
    if (!this.#rows.length) problems.push("Add a message.");
    if (this.agent) return [...problems, this.#agentForm?.problem ?? ""].filter(Boolean);
    const provider = this.provider;
    if (!this.#readModel().model) problems.push("Choose a model.");
    if (provider?.needs_base_url && !this.#field('[data-model-field="base_url"]').value.trim())
      problems.push(`Enter the address of ${provider.name}.`);
    return problems.filter(Boolean);
  }

  #readModel() {
    const [provider = "", chosen] = this.#modelChoice;
    const field = (/** @type {string} */ name) =>
      this.#field(`[data-model-field="${name}"]`).value.trim();
    const parameters = Object.fromEntries(
      PARAMETERS.map((name) => [name, this.#readParameter(name)]),
    );
    const has = this.provider;
    return {
      ...this.#otherModelFields,
      provider,
      model: chosen || field("model"),
      base_url: has?.has_base_url ? field("base_url") || null : null,
      api_version: provider === "azure_openai" ? field("api_version") || null : null,
      ...parameters,
    };
  }

  /** @param {string} name */
  #readParameter(name) {
    const text = this.#field(`[data-parameter="${name}"]`).value.trim();
    const isOffered = this.provider?.parameters.includes(name) ?? true;
    if (name === "stop" && text && isOffered) return text.split(/\s*,\s*/).map(unescapeText);
    if (!text || !isOffered) return null;
    if (!INTEGERS.has(name) && !NUMBERS.has(name)) return text;
    const number = Number(text);
    return Number.isFinite(number) ? (INTEGERS.has(name) ? Math.round(number) : number) : null;
  }

  get #rows() {
    return /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".play-message")]);
  }

  get #toolRows() {
    return /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".play-tool")]);
  }

  /**
   * @param {Message | null} message
   * @returns {HTMLElement}
   */
  #addMessage(message = null) {
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("play-message"));
    const fragment = /** @type {DocumentFragment} */ (document.importNode(template.content, true));
    const row = /** @type {HTMLElement} */ (fragment.querySelector(".play-message"));
    const role = message?.role ?? "human";
    row.dataset.role = role;
    selectField(row, "[data-message-role]").value = role;
    selectField(row, "[data-message-text]").value = readText(message);
    selectField(row, "[data-tool-name]").value = message?.name ?? "";
    selectField(row, "[data-tool-call-id]").value = message?.tool_call_id ?? "";
    selectField(row, "[data-tool-calls]").value = message?.tool_calls?.length
      ? JSON.stringify(message.tool_calls, null, 2)
      : "";
    this.#find("[data-messages]").append(fragment);
    const known = new Set(["role", "content", "name", "tool_call_id", "tool_calls"]);
    this.#otherFields.set(
      row,
      Object.fromEntries(Object.entries(message ?? {}).filter(([name]) => !known.has(name))),
    );
    this.#setAttachments(row, message ? readAttachments(message) : []);
    return row;
  }

  /** @param {HTMLElement} row @returns {Message} */
  #readMessage(row) {
    const role = selectField(row, "[data-message-role]").value;
    const text = selectField(row, "[data-message-text]").value;
    /** @type {Message} */
    const message = { role, content: joinContent(text, this.#attachments.get(row) ?? []) };
    if (role === "placeholder") message.content = text.trim();
    if (role === "ai") {
      Object.assign(message, this.#otherFields.get(row));
      const calls = parseJson(selectField(row, "[data-tool-calls]").value).value;
      if (Array.isArray(calls) && calls.length) message.tool_calls = calls;
    }
    if (role === "tool") {
      message.name = selectField(row, "[data-tool-name]").value.trim();
      message.tool_call_id = selectField(row, "[data-tool-call-id]").value.trim();
    }
    return message;
  }

  /** @param {HTMLElement} row */
  #checkMessage(row) {
    const role = selectField(row, "[data-message-role]").value;
    const text = selectField(row, "[data-message-text]").value;
    let problem = "";
    if (role === "placeholder") {
      if (!/^[A-Za-z_]\w*$/.test(text.trim())) problem = "A placeholder is the name of a variable.";
    } else {
      problem = findVariables(text, this.#field("[data-format]").value).error;
      if (role === "ai")
        problem ||= parseJson(selectField(row, "[data-tool-calls]").value, Array.isArray).error;
      if (role === "tool" && !selectField(row, "[data-tool-call-id]").value.trim())
        problem ||= "A result needs the id of its tool call.";
    }
    showProblem(row.querySelector("[data-message-error]"), problem);
    return problem;
  }

  /** @param {Tool | null} tool @returns {HTMLElement} */
  #addTool(tool = null) {
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("play-tool"));
    const fragment = /** @type {DocumentFragment} */ (document.importNode(template.content, true));
    const row = /** @type {HTMLElement} */ (fragment.querySelector(".play-tool"));
    const schema = tool?.schema ?? { type: "object", properties: {} };
    selectField(row, "[data-tool-field=name]").value = tool?.name ?? "";
    selectField(row, "[data-tool-field=description]").value = tool?.description ?? "";
    selectField(row, "[data-tool-field=schema]").value = JSON.stringify(schema, null, 2);
    selectField(row, "[data-tool-field=result]").value = tool?.result ?? "";
    selectField(row, "[data-tool-field=url]").value = tool?.target?.url ?? "";
    this.#selectToolSource(row, tool?.target ?? null);
    this.#find("[data-tools]").append(fragment);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Tool["target"]} target
   */
  #selectToolSource(row, target) {
    const menu = selectField(row, "[data-tool-source]");
    const value = target?.agent ? `agent ${target.agent}` : target?.url ? "url" : "";
    menu.value = value;
    if (menu.value === value) return;
    const option = new Option(`${target?.agent}, not available here`, value);
    menu.append(option);
    menu.value = value;
  }

  /** Offer the tools of the chosen agent, and take the first one into an empty row. @param {HTMLElement} row */
  async #loadAgentTools(row) {
    const { agent } = this.#readTarget(row) ?? {};
    const menu = selectField(row, "[data-agent-tool]");
    menu.replaceChildren();
    this.#agentTools.delete(row);
    if (!agent) return;
    try {
      const tools = await listAgentTools(agent);
      if (this.#readTarget(row)?.agent !== agent) return;
      this.#agentTools.set(row, tools);
      menu.replaceChildren(...tools.map((tool) => new Option(tool.name, tool.name)));
      const name = selectField(row, "[data-tool-field=name]").value.trim();
      if (tools.some((tool) => tool.name === name)) menu.value = name;
      else this.#takeAgentTool(row);
    } catch (error) {
      showProblem(
        row.querySelector("[data-tool-error]"),
        `The agent's tools are not available: ${error instanceof Error ? error.message : error}`,
      );
    }
  }

  /** Fill the row with the chosen tool of an agent. @param {HTMLElement} row */
  #takeAgentTool(row) {
    const name = selectField(row, "[data-agent-tool]").value;
    const tool = this.#agentTools.get(row)?.find((item) => item.name === name);
    if (!tool) return;
    selectField(row, "[data-tool-field=name]").value = tool.name;
    selectField(row, "[data-tool-field=description]").value = tool.description;
    selectField(row, "[data-tool-field=schema]").value = JSON.stringify(tool.inputSchema, null, 2);
    this.#announce();
  }

  /** @param {HTMLElement} row @returns {Tool["target"]} */
  #readTarget(row) {
    const source = selectField(row, "[data-tool-source]").value;
    if (source === "url") return { url: selectField(row, "[data-tool-field=url]").value.trim() };
    return source ? { agent: source.replace(/^agent /, "") } : null;
  }

  /** @param {HTMLElement} row @returns {Tool} */
  #readTool(row) {
    return {
      name: selectField(row, "[data-tool-field=name]").value.trim(),
      description: selectField(row, "[data-tool-field=description]").value,
      schema: parseJson(selectField(row, "[data-tool-field=schema]").value).value ?? {
        type: "object",
        properties: {},
      },
      result: selectField(row, "[data-tool-field=result]").value || null,
      target: this.#readTarget(row),
    };
  }

  /** @param {HTMLElement} row */
  #checkTool(row) {
    let problem = parseJson(selectField(row, "[data-tool-field=schema]").value, isObject).error;
    if (!/^[\w-]{1,64}$/.test(selectField(row, "[data-tool-field=name]").value.trim()))
      problem ||= "A tool has a name of letters, digits, - and _.";
    const url = this.#readTarget(row)?.url;
    if (url !== undefined && !/^https?:\/\/./.test(url))
      problem ||= "Enter the address of the webhook.";
    showProblem(row.querySelector("[data-tool-error]"), problem);
    return problem;
  }

  #checkSchema() {
    const problem = parseJson(this.#field("[data-schema]").value, isObject).error;
    showProblem(this.querySelector("[data-schema-error]"), problem);
    return problem;
  }

  /**
   * @param {HTMLElement} row
   * @param {Block[]} blocks
   */
  #setAttachments(row, blocks) {
    this.#attachments.set(row, blocks);
    const list = /** @type {HTMLElement} */ (row.querySelector("[data-attachments]"));
    list.hidden = !blocks.length;
    list.replaceChildren(
      ...blocks.map((block, index) => {
        const item = document.createElement("li");
        item.className = "play-attachment";
        const name = block.filename ?? block.url ?? block.mime_type ?? block.type;
        if (block.type === "image" && block.data) {
          const image = document.createElement("img");
          image.src = `data:${block.mime_type};base64,${block.data}`;
          image.alt = name;
          item.append(image);
        } else
          item.append(createIcon(block.type === "image" ? "image" : "file-text", "icon-small"));
        const label = document.createElement("span");
        label.className = "truncate";
        label.textContent = name;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "button button-quiet button-small button-icon";
        button.ariaLabel = `Remove ${name}`;
        button.append(createIcon("x"));
        button.addEventListener("click", () => {
          this.#setAttachments(
            row,
            blocks.filter((_, position) => position !== index),
          );
          this.#announce();
        });
        item.append(label, button);
        return item;
      }),
    );
  }

  /**
   * @param {HTMLElement} row
   * @param {FileList} files
   */
  async #attach(row, files) {
    const added = [];
    for (const file of files) {
      if (file.size > MAX_FILE_BYTES) {
        showProblem(
          row.querySelector("[data-message-error]"),
          `${file.name} is larger than ${MAX_FILE_BYTES / 1_000_000} MB.`,
        );
        continue;
      }
      const type = file.type || "application/octet-stream";
      const data = await readBase64(file);
      added.push(
        type.startsWith("image/")
          ? { type: "image", mime_type: type, data, filename: file.name }
          : { type: "file", mime_type: type, filename: file.name, data },
      );
    }
    this.#setAttachments(row, [
      ...(this.#attachments.get(row) ?? []),
      ...added.map(withoutImageName),
    ]);
    this.#announce();
  }

  #handleInput = (/** @type {Event} */ event) => {
    const target = /** @type {HTMLInputElement} */ (event.target);
    const row = /** @type {HTMLElement | null} */ (target.closest(".play-message"));
    if (target.matches("[data-attach]") && row && target.files) {
      this.#attach(row, target.files).then(() => (target.value = ""));
      return;
    }
    if (target.closest("[data-results]")) return;
    if (target.matches("[data-message-role]") && row) row.dataset.role = target.value;
    const tool = /** @type {HTMLElement | null} */ (target.closest(".play-tool"));
    if (tool && target.matches("[data-tool-source]")) this.#loadAgentTools(tool);
    if (tool && target.matches("[data-agent-tool]")) this.#takeAgentTool(tool);
    this.#announce();
  };

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    const action = /** @type {HTMLElement | null} */ (target.closest("[data-action]"));
    if (action) {
      const menu = action.closest("details");
      if (menu) menu.open = false;
      this.#send("column-action", { action: action.dataset.action });
    } else if (target.closest("[data-run]")) this.#send("column-action", { action: "run" });
    else if (target.closest("[data-stop]")) this.#send("column-action", { action: "stop" });
    else if (target.closest("[data-add-message]")) {
      const last = this.#rows.at(-1)?.dataset.role;
      const row = this.#addMessage({ role: last === "human" ? "ai" : "human", content: "" });
      this.#announce();
      selectField(row, "[data-message-text]").focus();
    } else if (target.closest("[data-remove-message]")) {
      const row = target.closest(".play-message");
      const next = row?.nextElementSibling ?? row?.previousElementSibling;
      row?.remove();
      this.#announce();
      const field = next?.querySelector("textarea") ?? this.querySelector("[data-add-message]");
      /** @type {HTMLElement | null} */ (field)?.focus();
    } else if (target.closest("[data-add-tool]")) {
      const row = this.#addTool();
      this.#announce();
      selectField(row, "[data-tool-field=name]").focus();
    } else if (target.closest("[data-json-object]")) {
      this.#field("[data-schema]").value = JSON.stringify({ type: "object" });
      this.#announce();
      this.#field("[data-schema]").focus();
    } else if (target.closest("[data-remove-tool]")) {
      target.closest(".play-tool")?.remove();
      this.#announce();
      this.#find("[data-add-tool]").focus();
    }
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const handle = /** @type {Element} */ (event.target).closest("[data-move]");
    const row = handle?.closest(".play-message");
    if (!row || (event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
    event.preventDefault();
    if (event.key === "ArrowUp") row.previousElementSibling?.before(row);
    else row.nextElementSibling?.after(row);
    /** @type {HTMLElement} */ (handle).focus();
    this.#announce();
  };

  #handleDragStart = (/** @type {DragEvent} */ event) => {
    const handle = /** @type {Element} */ (event.target).closest?.("[data-move]");
    this.#dragged = /** @type {HTMLElement | null} */ (handle?.closest(".play-message") ?? null);
    if (!this.#dragged || !event.dataTransfer) return;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setDragImage(this.#dragged, 8, 8);
  };

  #handleDragOver = (/** @type {DragEvent} */ event) => {
    const row = /** @type {Element} */ (event.target).closest?.(".play-message");
    if (!this.#dragged || !row || row === this.#dragged || !this.contains(row)) return;
    event.preventDefault();
    const box = row.getBoundingClientRect();
    if (event.clientY < box.top + box.height / 2) row.before(this.#dragged);
    else row.after(this.#dragged);
  };

  #handleDragEnd = () => {
    if (this.#dragged) this.#announce();
    this.#dragged = null;
  };

  #announce() {
    this.#update();
    this.#send("setting-change", {});
  }

  /**
   * @param {string} name
   * @param {Record<string, unknown>} detail
   */
  #send(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  /** Adapt marks, counts and fields to the setting. */
  #update() {
    const format = this.#field("[data-format]").value;
    for (const row of this.#rows) {
      const role = row.dataset.role;
      const field = row.querySelector("template-field");
      field?.setAttribute("format", role === "placeholder" ? "" : format);
      /** @type {import("./template-field.js").TemplateField | null} */ (field)?.refresh();
      toggle(row, "[data-tool-fields]", role === "tool");
      toggle(row, "[data-call-fields]", role === "ai" && hasCalls(row));
      toggle(row, ".play-attach", role === "human");
      selectField(row, "[data-message-text]").placeholder =
        role === "placeholder" ? "Variable with messages, such as history" : "";
      this.#checkMessage(row);
    }
    for (const row of this.#toolRows) {
      const target = this.#readTarget(row);
      toggle(row, "[data-tool-url]", target?.url !== undefined);
      toggle(row, "[data-agent-tools]", target?.agent !== undefined);
      toggle(row, "[data-tool-result]", target === null);
      this.#checkTool(row);
    }
    this.#checkSchema();
    this.#updateModel();
    const toolCount = this.#toolRows.length;
    this.#find("[data-tool-count]").textContent = toolCount ? String(toolCount) : "";
    this.#find("[data-schema-count]").textContent = this.#field("[data-schema]").value.trim()
      ? "1"
      : "";
    const setting = this.setting;
    const isChanged = this.#baseline !== null && this.#baseline !== committedPart(setting);
    this.#find("[data-changed]").hidden = !isChanged;
    this.#find("[data-name]").textContent = this.#prompt
      ? `${this.#prompt.repo} · ${this.#prompt.commit.slice(0, 8)}`
      : this.#title;
  }

  #updateModel() {
    const { agent, provider } = this;
    // A column that calls an agent keeps its model, for the time when it calls one again.
    if (!agent) this.#unusedModel = this.#readModel();
    this.#agentForm?.show(agent);
    this.toggleAttribute("data-calls-agent", agent !== null);
    for (const selector of ["[data-parameter-menu]", "[data-of-model]", ".play-model-fields"])
      toggle(this, selector, !agent);
    const [id, chosen] = this.#modelChoice;
    const model = provider?.models.find((item) => item.id === chosen);
    toggle(this, '[data-model-field="model"]', !chosen);
    toggle(this, '[data-model-field="base_url"]', Boolean(provider?.has_base_url));
    toggle(this, '[data-model-field="api_version"]', id === "azure_openai");
    this.#find("[data-price]").textContent =
      model && model.input_price !== null
        ? `$${model.input_price.toFixed(2)} in, $${model.output_price?.toFixed(2) ?? "?"} out`
        : "unknown";
    let count = 0;
    for (const name of PARAMETERS) {
      const isOffered = provider?.parameters.includes(name) ?? true;
      toggle(this, `[data-parameter-label="${name}"]`, isOffered);
      if (isOffered && this.#field(`[data-parameter="${name}"]`).value.trim()) count++;
    }
    this.#find("[data-parameter-count]").textContent = count ? String(count) : "";
    const takes = (/** @type {string} */ name) =>
      !agent && (!provider || provider.parameters.includes(name));
    toggle(this, '[data-part="tools"]', takes("tools"));
    toggle(this, '[data-part="schema"]', takes("response_schema"));
    this.#updateKeyNotice(provider);
  }

  /** @param {Provider | null} provider */
  #updateKeyNotice(provider) {
    const notice = this.#find("[data-no-key]");
    notice.hidden = !provider || !provider.needs_key || provider.has_key;
    if (notice.hidden || !provider || !this.#catalogue) return;
    notice.replaceChildren(createIcon("key-round", "icon-small"), `No key for ${provider.name}. `);
    if (!this.#catalogue.may_add_keys) {
      notice.append("Ask an administrator.");
      return;
    }
    const link = document.createElement("a");
    link.href = this.#catalogue.secrets_url;
    link.textContent = "Add one";
    notice.append(link);
  }
}

/** @param {HTMLElement} row */
function hasCalls(row) {
  const field = selectField(row, "[data-tool-calls]");
  return Boolean(field.value.trim()) || field === document.activeElement;
}

/**
 * @param {ParentNode} root
 * @param {string} selector
 * @param {boolean} isShown
 */
function toggle(root, selector, isShown) {
  const element = /** @type {HTMLElement | null} */ (root.querySelector(selector));
  if (element) element.hidden = !isShown;
}

/**
 * @param {Element | null} output
 * @param {string} problem
 */
function showProblem(output, problem) {
  if (!output) return;
  output.textContent = problem;
  output.toggleAttribute("hidden", !problem);
}

/**
 * @param {ParentNode} root
 * @param {string} selector
 */
function selectField(root, selector) {
  return /** @type {HTMLInputElement} */ (root.querySelector(selector));
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Return the value of a JSON text and why it is not one; an empty text has neither.
 *
 * @param {string} text
 * @param {(value: unknown) => boolean} [isExpected]
 * @returns {{ value?: unknown, error: string }}
 */
function parseJson(text, isExpected) {
  if (!text.trim()) return { error: "" };
  try {
    const value = JSON.parse(text);
    if (isExpected && !isExpected(value))
      return { error: `This is not a JSON ${isExpected === Array.isArray ? "list" : "object"}.` };
    return { value, error: "" };
  } catch (error) {
    return { error: `Not valid JSON: ${error instanceof Error ? error.message : error}` };
  }
}

/** @param {string} text */
function unescapeText(text) {
  try {
    return String(JSON.parse(`"${text}"`));
  } catch {
    return text;
  }
}

/** @param {Block} block @returns {Block} images have no name on the wire */
function withoutImageName(block) {
  if (block.type === "image") delete block.filename;
  return block;
}

/** @param {File} file @returns {Promise<string>} */
function readBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

customElements.define("prompt-column", PromptColumn);
