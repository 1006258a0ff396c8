/** Runs a column and keeps its last results as tabs. */
import { formatDuration } from "../lib/formatting.js";
import { readEvents } from "../lib/event-stream.js";
import { createElement, ReplyView } from "./reply-view.js";
import { RequestFailed, sendRequest } from "./requests.js";
import { callTool } from "./tool-calls.js";
import { describeDifferences, readText } from "./settings.js";

/**
 * @typedef {import("./types.js").Catalogue} Catalogue
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Recorded} Recorded
 * @typedef {import("./types.js").Setting} Setting
 * @typedef {import("./types.js").Urls} Urls
 * @typedef {import("./agent-reply.js").AgentReply} AgentReply
 * @typedef {ReplyView | AgentReply} Reply
 * @typedef {import("./types.js").RunInput} RunInput
 * @typedef {{ name: string, input: RunInput, isPinned: boolean, element: HTMLElement, attempts: Reply[][],
 *   differences: string[] }} Result
 */

const MAX_RESULTS = 5;
let lastId = 0;

export class ColumnResults {
  /** @type {Result[]} */
  #results = [];
  /** @type {Result | null} */
  #current = null;
  /** @type {AbortController | null} */
  #request = null;
  #id = `play-results-${++lastId}`;
  #tabs = createElement("div", "play-tabs");
  #panel = createElement("div", "play-result");
  /** @type {string | null} */
  #diffBase = null;
  #runCount = 0;

  /**
   * @param {HTMLElement} section
   * @param {{ urls: Urls, catalogue: Catalogue, letter: () => string,
   *   onTake: (messages: Message[]) => void, onChange: () => void }} options
   */
  constructor(section, options) {
    this.section = section;
    this.options = options;
    this.#tabs.role = "tablist";
    this.#tabs.ariaLabel = "Results";
    this.#tabs.hidden = true;
    this.#tabs.addEventListener("keydown", this.#handleKeydown);
    this.#panel.role = "tabpanel";
    this.#panel.id = this.#id;
    this.#panel.tabIndex = -1;
    section.replaceChildren(this.#tabs, this.#panel);
  }

  get isRunning() {
    return this.#request !== null;
  }

  /** The input of the newest run; null before the first. */
  get lastInput() {
    return this.#results.findLast((result) => !result.isPinned)?.input ?? null;
  }

  /** The text of the shown reply; null without one. @returns {string | null} */
  get text() {
    const reply = this.#current?.attempts[0]?.at(-1);
    return reply && reply.status !== "running" ? reply.text : null;
  }

  /** How the newest run ended, in words. */
  get outcome() {
    const replies = this.#current?.attempts.map((turns) => turns.at(-1)) ?? [];
    if (replies.some((reply) => reply?.status === "error")) return "failed";
    return replies.some((reply) => reply?.status === "stopped") ? "stopped" : "finished";
  }

  stop() {
    this.#request?.abort();
  }

  /**
   * Show the reply of a recorded run, which stays as the first tab.
   *
   * @param {Recorded} recorded
   * @param {RunInput} input
   */
  pin(recorded, input) {
    const result = this.#createResult("Recorded", input, true);
    const reply = new ReplyView({ tools: [], onContinue: null, onRetry: null });
    result.attempts.push([reply]);
    result.element.append(reply.element);
    if (recorded.error)
      reply.fail({
        code: "recorded",
        detail:
          typeof recorded.error === "string" ? recorded.error : JSON.stringify(recorded.error),
      });
    reply.finish({ ...recorded, schema_errors: null });
    this.#show(result);
  }

  /**
   * Send the input once or several times, one after another, and show the replies.
   *
   * @param {RunInput} input
   * @param {number} repetitions
   */
  async run(input, repetitions) {
    this.stop();
    const request = (this.#request = new AbortController());
    const last = this.lastInput;
    const differences = last ? describeDifferences(last.setting, input.setting) : [];
    const result = this.#createResult(`Run ${++this.#runCount}`, input, false, differences);
    this.#show(result);
    this.options.onChange();
    try {
      for (let count = 0; count < repetitions && !request.signal.aborted; count++) {
        const turns = /** @type {Reply[]} */ ([]);
        result.attempts.push(turns);
        await this.#streamReply(result, turns, [], request);
      }
      if (repetitions > 1) this.#summarize(result);
    } finally {
      if (this.#request === request) this.#request = null;
      this.#drawDiff();
      this.options.onChange();
    }
  }

  /**
   * @param {Result} result
   * @param {Reply[]} turns the replies so far, to which the new one is added
   * @param {Message[]} history the messages after the prompt
   * @param {AbortController} request
   */
  async #streamReply(result, turns, history, request) {
    const { input } = result;
    const position = turns.length;
    const retry = () => {
      reply.element.remove();
      turns.splice(position);
      this.#continue(result, turns, history);
    };
    /** @type {ReplyView | AgentReply} */
    const reply = input.setting.agent
      ? await this.#createAgentReply(retry)
      : this.#createReply(result, turns, history, retry);
    turns.push(reply);
    const previous = turns[position - 1];
    if (previous) previous.element.after(reply.element);
    else result.element.append(reply.element);
    const abort = () => reply.stop();
    request.signal.addEventListener("abort", abort);
    try {
      if ("run" in reply) await reply.run(input, this.options.urls, request.signal);
      else await this.#readReply(reply, input, history, request.signal);
      if (reply.status === "running")
        reply.fail({ code: "cut", detail: "The connection closed before the reply was complete." });
    } catch (error) {
      if (request.signal.aborted) reply.stop();
      else if (error instanceof RequestFailed)
        reply.fail({ ...error.problem, provider: "", status: null });
      else
        reply.fail({
          code: "cut",
          detail: "The connection was lost before the reply was complete.",
        });
    } finally {
      request.signal.removeEventListener("abort", abort);
    }
  }

  /** @param {() => void} onRetry */
  async #createAgentReply(onRetry) {
    const { AgentReply } = await import("./agent-reply.js");
    return new AgentReply({ onRetry, runUrl: this.options.urls.run });
  }

  /**
   * @param {Result} result
   * @param {Reply[]} turns
   * @param {Message[]} history
   * @param {() => void} onRetry
   */
  #createReply(result, turns, history, onRetry) {
    const { catalogue, urls } = this.options;
    const reply = new ReplyView({
      tools: result.input.setting.tools,
      callTool: (tool, args) => callTool(tool, args, urls.tool_call),
      keyNotice: { mayAdd: catalogue.may_add_keys, url: catalogue.secrets_url },
      onContinue: (results) => {
        const answer = reply.message ? [reply.message] : [];
        this.#continue(result, turns, [...history, ...answer, ...results]);
      },
      onRetry,
      onTake: (message) => this.options.onTake([...history, message]),
    });
    return reply;
  }

  /**
   * @param {ReplyView} reply
   * @param {RunInput} input
   * @param {Message[]} history
   * @param {AbortSignal} signal
   */
  async #readReply(reply, input, history, signal) {
    const response = await sendRequest(this.options.urls.stream, {
      method: "POST",
      signal,
      body: { letter: this.options.letter(), ...input, history },
    });
    for await (const { name, data } of readEvents(response)) {
      if (signal.aborted) return;
      reply.handle(name, JSON.parse(data));
    }
  }

  /**
   * @param {Result} result
   * @param {Reply[]} turns
   * @param {Message[]} history
   */
  async #continue(result, turns, history) {
    this.stop();
    const request = (this.#request = new AbortController());
    this.options.onChange();
    try {
      await this.#streamReply(result, turns, history, request);
    } finally {
      if (this.#request === request) this.#request = null;
      this.#drawDiff();
      this.options.onChange();
    }
  }

  /**
   * @param {string} name
   * @param {RunInput} input
   * @param {boolean} isPinned
   * @param {string[]} [differences]
   * @returns {Result}
   */
  #createResult(name, input, isPinned, differences = []) {
    const element = createElement("div", "play-replies");
    if (differences.length)
      element.append(createElement("p", "play-differences", differences.join(", ")));
    const result = { name, input, isPinned, element, attempts: [], differences };
    this.#results.push(result);
    const runs = this.#results.filter((item) => !item.isPinned);
    if (runs.length > MAX_RESULTS) this.#results = this.#results.filter((item) => item !== runs[0]);
    return result;
  }

  /** @param {Result} result */
  #show(result) {
    this.#current = result;
    this.#tabs.hidden = this.#results.length < 2;
    this.#tabs.replaceChildren(
      ...this.#results.map((item) => {
        const tab = /** @type {HTMLButtonElement} */ (createElement("button", "", item.name));
        tab.type = "button";
        tab.role = "tab";
        tab.ariaSelected = String(item === result);
        tab.tabIndex = item === result ? 0 : -1;
        tab.title = item.differences.join(", ");
        tab.setAttribute("aria-controls", this.#id);
        tab.addEventListener("click", () => {
          this.#show(item);
          /** @type {HTMLElement | null} */ (
            this.#tabs.querySelector('[aria-selected="true"]')
          )?.focus();
          this.options.onChange();
        });
        return tab;
      }),
    );
    if (this.#tabs.hidden) this.#panel.removeAttribute("aria-label");
    else this.#panel.ariaLabel = `Result ${result.name}`;
    this.#drawDiff();
  }

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !this.#current) return;
    event.preventDefault();
    const count = this.#results.length;
    const next = this.#results[(this.#results.indexOf(this.#current) + step + count) % count];
    if (next) this.#show(next);
    /** @type {HTMLElement | null} */ (this.#tabs.querySelector('[aria-selected="true"]'))?.focus();
    this.options.onChange();
  };

  /** Show the reply as its differences from another one; null shows the reply itself. @param {string | null} base */
  showDiff(base) {
    this.#diffBase = base;
    this.#drawDiff();
  }

  #drawDiff() {
    const { text } = this;
    if (this.#diffBase === null || !text) {
      this.#panel.replaceChildren(...(this.#current ? [this.#current.element] : []));
      return;
    }
    const view = document.createElement("diff-view");
    view.setAttribute("before", this.#diffBase);
    view.setAttribute("after", text);
    this.#panel.replaceChildren(view);
  }

  /**
   * State the spread of several attempts, and group equal answers.
   *
   * @param {Result} result
   */
  #summarize(result) {
    const replies = result.attempts.flatMap((turns) => turns.slice(0, 1));
    const done = replies.filter((reply) => reply.status === "success");
    const latencies = done
      .map((reply) => reply.end.latency_ms ?? 0)
      .filter(Boolean)
      .sort((a, b) => a - b);
    /** @type {Map<string, Reply[]>} */
    const groups = new Map();
    for (const reply of done) {
      const key = JSON.stringify([readText(reply.message), reply.message?.tool_calls ?? []]);
      groups.set(key, [...(groups.get(key) ?? []), reply]);
    }
    const failures = replies.length - done.length;
    const parts = [`${replies.length} runs`];
    if (latencies.length)
      parts.push(
        `${formatDuration(latencies[0])} to ${formatDuration(latencies.at(-1))}, median ${formatDuration(
          latencies[Math.floor(latencies.length / 2)],
        )}`,
      );
    parts.push(`${groups.size} different answer${groups.size === 1 ? "" : "s"}`);
    if (failures) parts.push(`${failures} without an answer`);
    const summary = createElement("p", "play-spread", parts.join(" · "));
    const lists = [...groups.values()]
      .sort((a, b) => b.length - a.length)
      .flatMap((group) => {
        const [first] = group;
        if (!first) return [];
        for (const other of group.slice(1)) other.element.remove();
        return group.length > 1
          ? [createElement("p", "play-group", `${group.length} times`), first.element]
          : [first.element];
      });
    result.element.prepend(summary);
    result.element.append(...lists);
  }
}
