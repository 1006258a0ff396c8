/** Draws one reply of a model while it streams, with its figures, its tool calls and its failures. */
import { formatCompact, formatDuration, formatMoney } from "../lib/formatting.js";
import { createIcon } from "../lib/icons.js";
import { readText } from "./settings.js";

/**
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Problem} Problem
 * @typedef {import("./types.js").SchemaError} SchemaError
 * @typedef {import("./types.js").Tool} Tool
 * @typedef {import("./types.js").Usage} Usage
 * @typedef {{ call: { id: string, name: string, arguments: string }, row: HTMLElement, text: HTMLElement }} CallView
 * @typedef {{ message?: Message | null, usage?: Usage, cost?: number | null, latency_ms?: number | null,
 *   first_token_ms?: number | null, trace_url?: string, schema_errors?: SchemaError[] | null,
 *   finish_reason?: string | null }} ReplyEnd
 */

let lastId = 0;

export class ReplyView {
  element = createElement("article", "play-reply");
  /** @type {"running" | "success" | "error" | "stopped"} */
  status = "running";
  /** @type {Message | null} */
  message = null;
  /** @type {ReplyEnd} */
  end = {};
  #parts = createElement("div", "message-parts");
  #figures = createElement("p", "figures mono play-figures");
  /** @type {Text | null} */
  #text = null;
  /** @type {Text | null} */
  #thinking = null;
  /** @type {CallView[]} */
  #calls = [];
  #traceUrl = "";

  /**
   * @param {{ tools: Tool[], onContinue: ((results: Message[]) => void) | null, onRetry: (() => void) | null,
   *   onTake?: (message: Message) => void, callTool?: (tool: Tool, args: unknown) => Promise<string>, keyNotice?: { mayAdd: boolean, url: string } }} options without `onContinue` tool calls cannot be answered
   */
  constructor(options) {
    this.options = options;
    this.element.dataset.status = "running";
    this.element.ariaBusy = "true";
    const skeleton = createElement("div", "skeleton");
    skeleton.ariaHidden = "true";
    skeleton.append(document.createElement("i"), document.createElement("i"));
    this.#parts.append(skeleton);
    this.element.append(this.#parts, this.#figures);
  }

  /** The text of the reply so far. */
  get text() {
    return this.message ? readText(this.message) : (this.#text?.data ?? "");
  }

  /**
   * Draw an event of the stream.
   *
   * @param {string} name
   * @param {any} data
   */
  handle(name, data) {
    if (name === "start") this.#traceUrl = data.trace_url ?? "";
    else if (name === "first_token") drawFigures(this.#figures, { first_token_ms: data.ms });
    else if (name === "text") this.#addText(data.text);
    else if (name === "thinking") this.#addThinking(data.text);
    else if (name === "tool_call") this.#addCall(data);
    else if (name === "error") this.fail(data);
    else if (name === "end") this.finish(data);
  }

  /** @param {ReplyEnd & { status?: string }} end */
  finish(end) {
    this.end = { trace_url: this.#traceUrl, ...end };
    if (this.status === "running") this.#setStatus(end.status === "error" ? "error" : "success");
    this.message = end.message ?? null;
    this.#drawMessage();
    drawFigures(this.#figures, this.end);
    if (this.status === "success") this.#noteFinish(end.finish_reason ?? "");
    this.#offerActions();
    if (end.schema_errors?.length) this.#showSchemaErrors(end.schema_errors);
    if (this.status === "success" && this.#calls.length && this.options.onContinue)
      this.#offerResults(this.options.onContinue);
  }

  /** Say why a reply is not complete. @param {string} reason of the provider */
  #noteFinish(reason) {
    const text = /length|max_tokens/i.test(reason)
      ? "The reply was cut at its longest length."
      : /filter|safety|refusal|blocked/i.test(reason)
        ? `The provider ended the reply: ${reason}.`
        : "";
    if (text) this.#parts.append(createElement("p", "notice tone-warning", text));
  }

  /** Offer to copy the reply, and to continue the prompt with it. */
  #offerActions() {
    const { message } = this;
    const { onTake } = this.options;
    if (!message) return;
    const tools = createElement("span", "play-reply-tools");
    const text = readText(message) || JSON.stringify(message.tool_calls ?? [], null, 2);
    const copy = document.createElement("copy-button");
    copy.setAttribute("value", text);
    copy.append(createIconButton("copy", "Copy the reply"));
    tools.append(copy);
    if (onTake) {
      const take = createIconButton("plus", "Add the reply to the prompt");
      take.addEventListener("click", () => onTake(message));
      tools.append(take);
    }
    this.#figures.append(tools);
  }

  /** @param {Problem} problem */
  fail(problem) {
    this.#setStatus("error");
    this.#skeleton?.remove();
    this.#parts.append(this.#createFailure(problem));
  }

  stop() {
    if (this.status !== "running") return;
    this.#setStatus("stopped");
    this.#skeleton?.remove();
    const note = createElement("p", "muted");
    note.textContent = "Stopped.";
    this.#parts.append(note);
  }

  get #skeleton() {
    return this.#parts.querySelector(".skeleton");
  }

  /** @param {"success" | "error" | "stopped"} status */
  #setStatus(status) {
    this.status = status;
    this.element.dataset.status = status;
    this.element.removeAttribute("aria-busy");
  }

  /** @param {string} text */
  #addText(text) {
    this.#skeleton?.remove();
    if (!this.#text) {
      const paragraph = createElement("p", "message-text");
      this.#text = document.createTextNode("");
      paragraph.append(this.#text);
      this.#parts.append(paragraph);
    }
    this.#text.appendData(text);
  }

  /** @param {string} text */
  #addThinking(text) {
    this.#skeleton?.remove();
    if (!this.#thinking) {
      const details = createElement("details", "thinking");
      const summary = document.createElement("summary");
      summary.append(createIcon("brain", "icon-small"), createElement("span", "", "Thinking"));
      const paragraph = document.createElement("p");
      this.#thinking = document.createTextNode("");
      paragraph.append(this.#thinking);
      details.append(summary, paragraph);
      this.#parts.prepend(details);
    }
    this.#thinking.appendData(text);
  }

  /** @param {{ index: number, id: string | null, name: string | null, arguments: string }} delta */
  #addCall(delta) {
    this.#skeleton?.remove();
    let view = this.#calls[delta.index];
    if (!view) {
      const row = createElement("div", "tool-call");
      const head = createElement("div", "tool-call-name");
      head.append(createIcon("wrench"), createElement("span", "", delta.name ?? ""));
      const text = document.createElement("pre");
      row.append(head, text);
      view = { call: { id: delta.id ?? "", name: delta.name ?? "", arguments: "" }, row, text };
      this.#calls[delta.index] = view;
      this.#parts.append(row);
    }
    view.call.id ||= delta.id ?? "";
    view.call.arguments += delta.arguments;
    view.text.textContent = view.call.arguments;
  }

  /** Replace the streamed text by the message, whose text is Markdown. */
  #drawMessage() {
    const message = this.message;
    if (!message) return;
    this.#skeleton?.remove();
    const text = readText(message);
    const streamed = this.#text?.parentElement;
    if (text) {
      const fold = document.createElement("fold-view");
      fold.append(...(isJsonValue(text) ? createJsonView(text) : [createMarkdown(text)]));
      if (streamed) streamed.replaceWith(fold);
      else this.#parts.append(fold);
    } else streamed?.remove();
    this.#text = null;
    if (message.thinking && !this.#thinking) this.#addThinking(message.thinking);
    for (const [index, call] of (message.tool_calls ?? []).entries()) {
      const known = this.#calls[index];
      const argumentText = JSON.stringify(call.arguments, null, 2);
      if (!known) this.#addCall({ index, id: call.id, name: call.name, arguments: argumentText });
      else known.text.textContent = argumentText;
      const view = this.#calls[index];
      if (view) view.call = { id: call.id, name: call.name, arguments: argumentText };
    }
    if (!text && !this.#calls.length && this.status === "success")
      this.#parts.append(createElement("p", "muted", "Empty reply"));
  }

  /**
   * Offer a field for the result of each call: the tool's made-up one, or one that its target returns.
   *
   * @param {(results: Message[]) => void} onContinue
   */
  #offerResults(onContinue) {
    const answers = this.#calls.map(({ call, row }) => {
      const tool = this.options.tools.find((item) => item.name === call.name);
      const answer = new CallAnswer(call, tool ?? null, this.options.callTool);
      row.append(answer.element);
      return answer;
    });
    const canCall = answers.some((answer) => answer.isCallable);
    const button = /** @type {HTMLButtonElement} */ (
      createElement("button", "button button-small play-continue")
    );
    button.type = "button";
    const label = createElement("span", "", canCall ? "Call and continue" : "Continue");
    button.append(createIcon("corner-down-left"), label);
    const proceed = async () => {
      if (button.disabled) return;
      button.disabled = true;
      const results = await Promise.all(answers.map((answer) => answer.read()));
      button.disabled = false;
      if (results.includes(null) || !button.isConnected) return;
      this.#closeCalls(results.map((result) => result ?? ""));
      button.remove();
      onContinue(
        this.#calls.map(({ call }, index) => ({
          role: "tool",
          tool_call_id: call.id,
          name: call.name,
          content: results[index] ?? "",
        })),
      );
    };
    button.addEventListener("click", proceed);
    for (const { element } of answers)
      element.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        // Elsewhere on the page these keys run all columns again.
        event.preventDefault();
        event.stopPropagation();
        proceed();
      });
    this.#parts.append(button);
  }

  /** Show the given results below their calls. @param {string[]} results */
  #closeCalls(results) {
    for (const [index, { row }] of this.#calls.entries()) {
      row.querySelector(".play-call-answer")?.remove();
      drawResult(row, results[index] ?? "");
    }
  }

  /**
   * Show the result of a call that the agent made; return whether the reply has that call.
   *
   * @param {string} id
   * @param {string} text
   */
  showResult(id, text) {
    const view = this.#calls.find(({ call }) => call.id === id);
    if (view) drawResult(view.row, text);
    return view !== undefined;
  }

  /** @param {SchemaError[]} errors */
  #showSchemaErrors(errors) {
    this.element.dataset.invalid = "";
    const notice = createNotice("The reply does not match the response schema.");
    const list = document.createElement("ul");
    for (const { path, rule, message } of errors) {
      const item = document.createElement("li");
      item.append(createElement("code", "", path), ` ${rule}: ${message}`);
      list.append(item);
    }
    notice.lastElementChild?.append(list);
    this.#parts.prepend(notice);
    const text = readText(this.message);
    if (!isJson(text)) return;
    const [data, view] = createJsonView(text);
    view.setAttribute("path", JSON.stringify(parsePath(errors[0]?.path ?? "$")));
    this.#parts.querySelector("fold-view")?.replaceWith(data, view);
  }

  /** @param {Problem} problem */
  #createFailure(problem) {
    const notice = createNotice(describeProblem(problem));
    const text = /** @type {HTMLElement} */ (notice.lastElementChild);
    const key = this.options.keyNotice;
    if (problem.code === "no_provider_key" && key) {
      if (key.mayAdd) {
        const link = document.createElement("a");
        link.href = key.url;
        link.textContent = "Add one";
        text.append(" ", link);
      } else text.append(" Ask an administrator.");
    } else if (this.options.onRetry) text.append(this.#createRetry(problem, this.options.onRetry));
    return notice;
  }

  /**
   * @param {Problem} problem
   * @param {() => void} onRetry
   */
  #createRetry(problem, onRetry) {
    const button = /** @type {HTMLButtonElement} */ (
      createElement("button", "button button-small play-retry", "Retry")
    );
    button.type = "button";
    button.addEventListener("click", onRetry);
    let seconds = Math.ceil(problem.retry_after ?? 0);
    if (!seconds) return button;
    button.disabled = true;
    button.textContent = `Retry in ${seconds} s`;
    const timer = setInterval(() => {
      seconds -= 1;
      button.disabled = seconds > 0;
      button.textContent = seconds > 0 ? `Retry in ${seconds} s` : "Retry";
      if (seconds <= 0 || !button.isConnected) clearInterval(timer);
    }, 1_000);
    return button;
  }
}

/**
 * Show the figures of a reply.
 *
 * @param {HTMLElement} output
 * @param {ReplyEnd} end
 */
export function drawFigures(output, { latency_ms, first_token_ms, usage, cost, trace_url }) {
  output.replaceChildren();
  if (latency_ms !== null && latency_ms !== undefined)
    output.append(createFigure(formatDuration(latency_ms), "Latency"));
  if (usage)
    output.append(
      createFigure(
        `${formatCompact(usage.input_tokens)} → ${formatCompact(usage.output_tokens)}`,
        "Tokens in and out",
      ),
    );
  if (cost !== null && cost !== undefined) output.append(createFigure(formatMoney(cost), "Cost"));
  if (first_token_ms !== null && first_token_ms !== undefined) {
    const figure = createFigure(formatDuration(first_token_ms), "First token");
    figure.prepend(createIcon("zap", "icon-small"));
    output.append(figure);
  }
  if (trace_url) {
    const link = document.createElement("a");
    link.href = trace_url;
    link.textContent = "Open run";
    output.append(link);
  }
}

/**
 * @param {HTMLElement} row
 * @param {string} content
 */
function drawResult(row, content) {
  row.querySelector(".tool-call-result")?.remove();
  const result = createElement("div", "tool-call-result");
  const text = document.createElement("pre");
  text.textContent = content || "Empty result";
  result.append(createIcon("corner-down-left", "icon-small"), text);
  row.append(result);
}

/** The field for the result of one tool call. */
class CallAnswer {
  element = createElement("div", "play-call-answer");
  #field = document.createElement("textarea");
  #problem = createElement("p", "field-error");
  #note = createElement("span", "muted");

  /**
   * @param {CallView["call"]} call
   * @param {Tool | null} tool null for a call of a tool that the column does not have
   * @param {((tool: Tool, args: unknown) => Promise<string>) | undefined} callTool
   */
  constructor(call, tool, callTool) {
    this.call = call;
    this.tool = tool;
    this.callTool = callTool;
    const label = createElement("label", "", `Result of ${call.name}`);
    this.#field.className = "input input-mono";
    this.#field.rows = 2;
    this.#field.value = this.isCallable ? "" : (tool?.result ?? "");
    if (this.isCallable) this.#field.placeholder = "Empty: the tool is called";
    label.append(this.#field);
    this.#problem.hidden = true;
    this.#problem.role = "alert";
    this.element.append(label);
    if (this.isCallable) {
      const button = /** @type {HTMLButtonElement} */ (
        createElement("button", "button button-small", "Call it")
      );
      button.type = "button";
      button.addEventListener("click", async () => {
        button.disabled = true;
        await this.#call();
        button.disabled = false;
      });
      const actions = createElement("div", "play-call-actions");
      actions.append(button, this.#note);
      this.element.append(actions);
    }
    this.element.append(this.#problem);
  }

  get isCallable() {
    return Boolean(this.tool?.target && this.callTool);
  }

  /** Return the result, for which an empty field calls the tool; null if that failed. @returns {Promise<string | null>} */
  async read() {
    if (!this.isCallable || this.#field.value) return this.#field.value;
    return (await this.#call()) ? this.#field.value : null;
  }

  /** @returns {Promise<boolean>} whether the tool returned a result */
  async #call() {
    if (!this.tool || !this.callTool) return false;
    const started = performance.now();
    this.#problem.hidden = true;
    this.#note.textContent = "Calling…";
    try {
      this.#field.value = await this.callTool(this.tool, JSON.parse(this.call.arguments));
      this.#note.textContent = formatDuration(performance.now() - started);
      return true;
    } catch (error) {
      this.#note.textContent = "";
      this.#problem.textContent = error instanceof Error ? error.message : String(error);
      this.#problem.hidden = false;
      return false;
    }
  }
}

/** @param {Problem} problem */
function describeProblem(problem) {
  const names = (problem.errors ?? []).map((error) => error.field).filter(Boolean);
  if (problem.code === "missing_variables" && names.length) return `Fill in ${names.join(", ")}.`;
  if (problem.code === "no_provider_key") return problem.detail;
  const source =
    problem.provider && problem.status ? `${problem.provider} answered ${problem.status}. ` : "";
  return `${source}${problem.detail}`;
}

/** @param {string} text */
function createNotice(text) {
  const notice = createElement("div", "notice tone-error");
  notice.append(createIcon("circle-alert"), createElement("div", "", text));
  return notice;
}

/**
 * @param {string} text
 * @param {string} label
 */
function createFigure(text, label) {
  const figure = document.createElement("span");
  figure.title = label;
  figure.append(createElement("span", "visually-hidden", `${label} `), text);
  return figure;
}

/**
 * @param {string} name
 * @param {string} [classes]
 * @param {string} [text]
 */
export function createElement(name, classes = "", text = "") {
  const element = document.createElement(name);
  if (classes) element.className = classes;
  if (text) element.textContent = text;
  return element;
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Whether the text is a JSON object or list. @param {string} text */
function isJsonValue(text) {
  return /^\s*[{[]/.test(text) && isJson(text);
}

/** @param {string} text */
function createMarkdown(text) {
  const view = createElement("markdown-view", "message-text prose");
  view.textContent = text;
  return view;
}

/** @param {string} text @returns {[HTMLElement, HTMLElement]} the data and the view that shows it */
function createJsonView(text) {
  const data = document.createElement("script");
  data.type = "application/json";
  data.id = `play-json-${++lastId}`;
  data.textContent = text;
  const view = document.createElement("json-view");
  view.setAttribute("for", data.id);
  view.ariaLabel = "The reply as JSON";
  return [data, view];
}

/**
 * @param {string} icon
 * @param {string} label
 */
function createIconButton(icon, label) {
  const button = /** @type {HTMLButtonElement} */ (
    createElement("button", "button button-quiet button-small button-icon")
  );
  button.type = "button";
  button.title = label;
  button.ariaLabel = label;
  button.append(createIcon(icon));
  return button;
}

/**
 * Return the keys of a path such as `$.items[0].id`.
 *
 * @param {string} path
 * @returns {(string | number)[]}
 */
export function parsePath(path) {
  return [...path.matchAll(/\.([^.[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]/g)].map(
    ([, name, index, quoted]) => (index === undefined ? (name ?? quoted ?? "") : Number(index)),
  );
}
