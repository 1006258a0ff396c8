/**
 * <agent-call url="…/agents/x" assistant="agent" runs="/o/…/r/">…</agent-call>: sends the message of its form to the agent as
 * the signed-in member, and writes the reply as it streams, with a link to its trace.
 */
import { readEvents } from "../lib/event-stream.js";

class AgentCall extends HTMLElement {
  /** @type {AbortController | null} */
  #request = null;
  /** @type {Map<string, HTMLElement>} */
  #messages = new Map();

  connectedCallback() {
    this.hidden = false;
    this.querySelector("form")?.addEventListener("submit", this.#handleSubmit);
  }

  disconnectedCallback() {
    this.#request?.abort();
  }

  get #answer() {
    return /** @type {HTMLElement} */ (this.querySelector(".agent-answer"));
  }

  #handleSubmit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const question = String(new FormData(form).get("question") ?? "").trim();
    if (!question) return;
    this.#request?.abort();
    this.#request = new AbortController();
    this.#messages.clear();
    this.#answer.replaceChildren();
    const button = form.querySelector("button");
    if (button) button.disabled = true;
    try {
      const token = String(new FormData(form).get("csrfmiddlewaretoken") ?? "");
      await this.#stream(question, token, this.#request.signal);
    } catch (error) {
      if (!this.#request.signal.aborted) this.#show("error", /** @type {Error} */ (error).message);
    } finally {
      if (button) button.disabled = false;
    }
  };

  /**
   * @param {string} question
   * @param {string} token that the session needs for a request from a page
   * @param {AbortSignal} signal
   */
  async #stream(question, token, signal) {
    // The same path at the address of this page, to which the session belongs.
    const path = new URL(this.getAttribute("url") ?? "", location.href).pathname;
    const response = await fetch(`${path}/runs/stream`, {
      method: "POST",
      signal,
      headers: {
        "Content-Type": "application/json",
        Accept: "text/event-stream",
        "X-CSRFToken": token,
      },
      body: JSON.stringify({
        assistant_id: this.getAttribute("assistant"),
        input: { messages: [{ role: "user", content: question }] },
        stream_mode: ["messages-tuple"],
      }),
    });
    if (!response.ok) {
      const body = await response.json().catch(() => null);
      throw new Error(body?.detail ?? `The agent answered ${response.status}.`);
    }
    for await (const { name, data } of readEvents(response)) {
      const body = JSON.parse(data);
      if (name === "metadata") this.#linkTrace(body.run_id);
      else if (name.startsWith("messages")) this.#addMessage(body[0]);
      else if (name === "error")
        this.#show("error", body.message ?? body.error ?? "The run failed.");
    }
  }

  /** @param {{ id?: string, type?: string, content?: unknown, tool_calls?: { name: string }[] }} message */
  #addMessage(message) {
    const text = readText(message?.content);
    const isTool = message?.type === "tool";
    if (!text || (!isTool && !message?.type?.startsWith("AI") && message?.type !== "ai")) return;
    const id = message.id ?? "reply";
    const line = this.#messages.get(id) ?? this.#show(isTool ? "tool" : "reply", "");
    this.#messages.set(id, line);
    // A chunk continues its message; a whole message replaces it.
    line.textContent = message.type?.endsWith("Chunk") ? (line.textContent ?? "") + text : text;
  }

  /**
   * @param {string} kind
   * @param {string} text
   */
  #show(kind, text) {
    const line = document.createElement("p");
    line.className = `agent-answer-${kind}`;
    line.textContent = text;
    this.#answer.insertBefore(line, this.#answer.querySelector("a"));
    return line;
  }

  /** @param {string | undefined} runId */
  #linkTrace(runId) {
    const base = this.getAttribute("runs");
    if (!runId || !base || this.#answer.querySelector("a")) return;
    const link = document.createElement("a");
    link.href = `${base}${runId}`;
    link.textContent = "Open the trace";
    this.#answer.append(link);
  }
}

/**
 * @param {unknown} content
 * @returns {string}
 */
function readText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block) => (typeof block === "string" ? block : (block?.text ?? ""))).join("");
}

customElements.define("agent-call", AgentCall);
