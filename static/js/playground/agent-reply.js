/** Runs a deployed agent as a column, and draws its transcript while it streams. */
import { readEvents } from "../lib/event-stream.js";
import { agentPath } from "./agent-form.js";
import { createElement, drawFigures, ReplyView } from "./reply-view.js";
import { requestJson, sendRequest } from "./requests.js";
import { readText } from "./settings.js";

/**
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Problem} Problem
 * @typedef {import("./types.js").Urls} Urls
 * @typedef {import("./reply-view.js").ReplyEnd} ReplyEnd
 * @typedef {import("./types.js").RunInput} RunInput
 * @typedef {{ index?: number, id?: string, name?: string, args?: string }} CallChunk
 * @typedef {{ id?: string, type?: string, content?: any, name?: string, tool_call_id?: string,
 *   tool_calls?: { id?: string, name: string, args: unknown }[], tool_call_chunks?: CallChunk[],
 *   usage_metadata?: { input_tokens: number, output_tokens: number } | null }} AgentMessage
 */

export class AgentReply {
  element = createElement("div", "play-agent-reply");
  /** @type {"running" | "success" | "error" | "stopped"} */
  status = "running";
  /** @type {Message | null} */
  message = null;
  /** @type {ReplyEnd} */
  end = {};
  /** The messages of the assistant by their ids, in order. @type {Map<string, ReplyView>} */
  #turns = new Map();
  /** @type {Map<string, { input_tokens: number, output_tokens: number }>} */
  #usages = new Map();
  /** @type {Record<string, any> | null} */
  #values = null;
  #figures = createElement("p", "figures mono play-figures");
  #started = performance.now();
  #waiting = this.#createTurn();

  /** @param {{ onRetry: () => void, runUrl: string }} options `runUrl` has RUN in the place of the run's id */
  constructor(options) {
    this.options = options;
    this.element.append(this.#waiting.element, this.#figures);
  }

  get text() {
    return [...this.#turns.values()].at(-1)?.text ?? "";
  }

  #createTurn() {
    return new ReplyView({
      tools: [],
      onContinue: null,
      onRetry: () => this.options.onRetry(),
    });
  }

  /**
   * Run the agent. Raises `RequestFailed` and the errors of an aborted request.
   *
   * @param {RunInput} input
   * @param {Urls} urls
   * @param {AbortSignal} signal
   */
  async run({ setting, variables }, urls, signal) {
    const { slug, assistant, context } = setting.agent ?? { slug: "", assistant: "", context: {} };
    const body = { setting, variables };
    const { messages } = await requestJson(urls.messages, { method: "POST", body, signal });
    const runInput = readInput(messages);
    const response = await sendRequest(`${agentPath(slug)}/runs/stream`, {
      method: "POST",
      signal,
      accept: "text/event-stream",
      body: {
        assistant_id: assistant,
        input: runInput,
        context,
        stream_mode: ["messages-tuple", "values"],
        on_disconnect: "cancel",
      },
    });
    for await (const { name, data } of readEvents(response)) {
      if (signal.aborted) return;
      this.#handle(name, JSON.parse(data));
    }
    if (this.status === "running") this.#finish(runInput.messages?.length ?? 0);
  }

  /**
   * @param {string} name
   * @param {any} data
   */
  #handle(name, data) {
    if (name === "metadata") this.end.trace_url = this.options.runUrl.replace("RUN", data.run_id);
    else if (name.startsWith("messages")) this.#addMessage(data[0]);
    else if (name === "values") this.#values = data;
    else if (name === "error")
      this.fail({
        code: "agent_failed",
        detail: data.message ?? data.error ?? "The run failed.",
      });
    if (name === "metadata") drawFigures(this.#figures, this.end);
  }

  /** @param {AgentMessage} message */
  #addMessage(message) {
    if (message.type === "tool") {
      this.#showResult(message);
      return;
    }
    if (!message.type?.startsWith("AI") && message.type !== "ai") return;
    const id = message.id ?? `turn ${this.#turns.size}`;
    const turn = this.#turnOf(id);
    if (message.usage_metadata) this.#usages.set(id, message.usage_metadata);
    if (!message.type.endsWith("Chunk")) {
      if (turn.status === "running") turn.finish({ message: convertMessage(message) });
      return;
    }
    const text = readText(convertMessage(message));
    if (text) turn.handle("text", { text });
    for (const chunk of message.tool_call_chunks ?? [])
      turn.handle("tool_call", {
        index: chunk.index ?? 0,
        id: chunk.id ?? null,
        name: chunk.name ?? null,
        arguments: chunk.args ?? "",
      });
  }

  /** @param {string} id */
  #turnOf(id) {
    const known = this.#turns.get(id);
    if (known) return known;
    if (!this.#turns.size) {
      this.end.first_token_ms = Math.round(performance.now() - this.#started);
      this.#waiting.element.remove();
    }
    const turn = this.#createTurn();
    this.#turns.set(id, turn);
    this.#figures.before(turn.element);
    return turn;
  }

  /** @param {AgentMessage} message */
  #showResult(message) {
    const text = readText(convertMessage(message));
    for (const turn of this.#turns.values())
      if (turn.showResult(message.tool_call_id ?? "", text)) return;
  }

  /**
   * Draw the transcript from the state at the end.
   *
   * @param {number} inputCount the messages of the input, with which the state begins
   */
  #finish(inputCount) {
    const values = this.#values ?? {};
    const messages = /** @type {AgentMessage[] | undefined} */ (
      Array.isArray(values.messages) ? values.messages.slice(inputCount) : undefined
    );
    for (const message of messages ?? []) {
      if (message.type === "ai") {
        const id = message.id ?? `turn ${this.#turns.size}`;
        this.message = convertMessage(message);
        if (message.usage_metadata) this.#usages.set(id, message.usage_metadata);
        const turn = this.#turnOf(id);
        if (turn.status === "running") turn.finish({ message: this.message });
        this.#figures.before(turn.element);
      } else if (message.type === "tool") this.#showResult(message);
    }
    for (const turn of this.#turns.values()) if (turn.status === "running") turn.finish({});
    this.#waiting.element.remove();
    if (!this.#turns.size) this.#figures.before(createState(values));
    const { __interrupt__: interrupts } = values;
    if (interrupts?.length) {
      const note = createElement("p", "notice tone-info", "The agent waits for input: ");
      note.append(createElement("code", "", JSON.stringify(interrupts.map(readInterrupt))));
      this.#figures.before(note);
    }
    this.#close("success");
  }

  /** @param {"success" | "error" | "stopped"} status */
  #close(status) {
    this.status = status;
    const usages = [...this.#usages.values()];
    /** @param {"input_tokens" | "output_tokens"} name */
    const sum = (name) => usages.reduce((total, usage) => total + usage[name], 0);
    this.end.latency_ms = Math.round(performance.now() - this.#started);
    if (usages.length) {
      const [input, output] = [sum("input_tokens"), sum("output_tokens")];
      this.end.usage = {
        input_tokens: input,
        output_tokens: output,
        total_tokens: input + output,
      };
    }
    drawFigures(this.#figures, this.end);
  }

  /** @param {Problem} problem */
  fail(problem) {
    this.#waiting.element.remove();
    const turn = this.#createTurn();
    this.#figures.before(turn.element);
    turn.fail(problem);
    this.#close("error");
  }

  stop() {
    if (this.status !== "running") return;
    const turn = [...this.#turns.values()].at(-1) ?? this.#waiting;
    turn.stop();
    this.#close("stopped");
  }
}

/**
 * Return the input of the run: the messages, or the JSON object that a single message is.
 *
 * @param {{ content: unknown }[]} messages
 * @returns {Record<string, any>}
 */
function readInput(messages) {
  const [first] = messages;
  if (messages.length === 1 && typeof first?.content === "string")
    try {
      const value = JSON.parse(first.content);
      if (value && typeof value === "object" && !Array.isArray(value)) return value;
    } catch {
      // A text, not JSON.
    }
  return { messages };
}

/** @param {AgentMessage} message @returns {Message} */
function convertMessage(message) {
  const blocks = Array.isArray(message.content) ? message.content : [];
  const text =
    typeof message.content === "string"
      ? message.content
      : blocks.map((block) => (typeof block === "string" ? block : (block?.text ?? ""))).join("");
  return {
    role: message.type === "tool" ? "tool" : "ai",
    content: text,
    tool_calls: (message.tool_calls ?? []).map((call, index) => ({
      id: call.id ?? `call_${index}`,
      name: call.name,
      arguments: call.args,
    })),
  };
}

/** @param {{ value?: unknown }} interrupt */
function readInterrupt(interrupt) {
  return interrupt.value ?? interrupt;
}

/** Show the state of an agent without messages. @param {Record<string, unknown>} values */
function createState(values) {
  const state = createElement("pre", "play-agent-state");
  state.textContent = JSON.stringify(values, null, 2);
  return state;
}
