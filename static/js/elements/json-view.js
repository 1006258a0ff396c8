/**
 * <json-view for="inputs-json"> or <json-view src="…/inputs">: shows a JSON value as a collapsible tree. Children are
 * rendered on demand, one hundred at a time. With `src`, a worker fetches and parses the document. The value at `path`, a
 * JSON list of keys, is shown and marked.
 */
import { createIcon } from "../lib/icons.js";
import { describeLevel, resolvePath } from "../lib/json-tree.js";

const OPEN_CHILDREN = 12;

/**
 * @typedef {import("../lib/json-tree.js").Entry} Entry
 * @typedef {import("../lib/json-tree.js").Level} Level
 * @typedef {(path: (string | number)[], from: number) => Promise<Level>} Source
 */

class JsonView extends HTMLElement {
  /** @type {(string | number)[] | null} */
  #markedPath = null;

  async connectedCallback() {
    if (this.dataset.ready !== undefined) return;
    this.dataset.ready = "";
    const src = this.getAttribute("src");
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
    this.setAttribute("role", "group");
    this.#markedPath = JSON.parse(this.getAttribute("path") ?? "null");
    try {
      const source = src ? fromWorker(src) : fromText(text ?? "null");
      const first = await source([], 0);
      this.replaceChildren();
      await this.#renderLevel(this, source, [], first, true);
    } catch (error) {
      this.textContent = `The value could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
  }

  /**
   * @param {Element} container
   * @param {Source} source
   * @param {(string | number)[]} path
   * @param {Level} level
   * @param {boolean} [isRoot]
   */
  async #renderLevel(container, source, path, level, isRoot = false) {
    for (const entry of level.entries)
      container.append(
        await this.#renderNode(
          source,
          [...path, entry.key],
          entry,
          (isRoot && level.total <= OPEN_CHILDREN) || this.#isAboveMarked([...path, entry.key]),
        ),
      );
    const shown = container.querySelectorAll(":scope > .json-node").length;
    if (shown >= level.total) return;
    const moreButton = document.createElement("button");
    moreButton.type = "button";
    moreButton.className = "json-more";
    moreButton.textContent = `${level.total - shown} more`;
    moreButton.addEventListener("click", async () => {
      moreButton.remove();
      await this.#renderLevel(container, source, path, await source(path, shown));
    });
    container.append(moreButton);
  }

  /**
   * @param {Source} source
   * @param {(string | number)[]} path
   * @param {Entry} entry
   * @param {boolean} open
   */
  async #renderNode(source, path, entry, open) {
    const node = document.createElement("div");
    node.className = "json-node";
    const isContainer = entry.kind === "object" || entry.kind === "array";
    const line = document.createElement(isContainer && entry.size ? "button" : "span");
    line.className = "json-line";
    const content = document.createElement("span");
    if (entry.key !== "")
      content.append(
        createSpan("json-key", typeof entry.key === "number" ? `${entry.key}` : entry.key),
        ": ",
      );
    content.append(createSpan(`json-${isContainer ? "note" : entry.kind}`, entry.text));
    line.append(content);
    node.append(line);
    if (this.#markedPath?.length === path.length && this.#isAboveMarked(path, 0))
      line.dataset.marked = "";
    if (entry.truncated) content.append(createSpan("json-note", ` … ${entry.size} characters`));
    if (line instanceof HTMLButtonElement) {
      line.type = "button";
      line.prepend(createIcon("chevron-right"));
      line.setAttribute("aria-expanded", "false");
      line.addEventListener("click", () => this.#toggle(line, node, source, path));
      if (open) await this.#toggle(line, node, source, path);
    }
    return node;
  }

  /**
   * @param {(string | number)[]} path
   * @param {number} [distance] how much longer the marked path is at least
   */
  #isAboveMarked(path, distance = 1) {
    const marked = this.#markedPath ?? [];
    return (
      path.length + distance <= marked.length && path.every((key, index) => key === marked[index])
    );
  }

  /**
   * @param {HTMLElement} line
   * @param {HTMLElement} node
   * @param {Source} source
   * @param {(string | number)[]} path
   */
  async #toggle(line, node, source, path) {
    const isExpanding = line.getAttribute("aria-expanded") === "false";
    line.setAttribute("aria-expanded", String(isExpanding));
    let children = /** @type {HTMLElement | null} */ (
      node.querySelector(":scope > .json-children")
    );
    if (!children) {
      children = document.createElement("div");
      children.className = "json-children";
      node.append(children);
      await this.#renderLevel(children, source, path, await source(path, 0));
    }
    children.hidden = !isExpanding;
  }
}

/**
 * @param {string} classes
 * @param {string} text
 */
function createSpan(classes, text) {
  const span = document.createElement("span");
  span.className = classes;
  span.textContent = text;
  return span;
}

/**
 * @param {string} text
 * @returns {Source}
 */
function fromText(text) {
  const value = JSON.parse(text);
  return async (path, from) => describeLevel(resolvePath(value, path), from);
}

/**
 * @param {string} src
 * @returns {Source}
 */
function fromWorker(src) {
  const worker = new Worker(new URL("../workers/json-worker.js", import.meta.url), {
    type: "module",
  });
  /** @type {Map<number, { resolve: (level: Level) => void, reject: (error: Error) => void }>} */
  const pending = new Map();
  let lastId = 0;
  worker.onmessage = ({ data }) => {
    const request = pending.get(data.id);
    pending.delete(data.id);
    if (data.error) request?.reject(new Error(data.error));
    else request?.resolve(data.level);
  };
  worker.postMessage({ src: new URL(src, location.href).href });
  return (path, from) =>
    new Promise((resolve, reject) => {
      pending.set(++lastId, { resolve, reject });
      worker.postMessage({ id: lastId, path, from });
    });
}

customElements.define("json-view", JsonView);
