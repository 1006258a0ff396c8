/**
 * <json-view for="inputs-json"> or <json-view src="…/inputs">: a JSON value that opens by the level. Children are made
 * when they are asked for, a hundred at a time. From `src` a worker fetches and parses, so the page stays quick.
 */
import { icon } from "../lib/icons.js";
import { level, within } from "../lib/json-levels.js";

const OPEN_CHILDREN = 12;

/**
 * @typedef {import("../lib/json-levels.js").Entry} Entry
 * @typedef {import("../lib/json-levels.js").Level} Level
 * @typedef {(path: (string | number)[], from: number) => Promise<Level>} Source
 */

class JsonView extends HTMLElement {
  async connectedCallback() {
    if (this.dataset.ready !== undefined) return;
    this.dataset.ready = "";
    const src = this.getAttribute("src");
    const text = document.getElementById(this.getAttribute("for") ?? "")?.textContent;
    this.setAttribute("role", "group");
    try {
      const source = src ? fromWorker(src) : fromText(text ?? "null");
      const first = await source([], 0);
      this.replaceChildren();
      await this.#level(this, source, [], first, true);
    } catch (error) {
      this.textContent = `The value could not be loaded: ${error instanceof Error ? error.message : error}`;
    }
  }

  /**
   * @param {Element} place
   * @param {Source} source
   * @param {(string | number)[]} path
   * @param {Level} level
   * @param {boolean} [outermost]
   */
  async #level(place, source, path, level, outermost = false) {
    for (const entry of level.entries) place.append(await this.#node(source, [...path, entry.key], entry, outermost && level.total <= OPEN_CHILDREN));
    const shown = place.querySelectorAll(":scope > .json-node").length;
    if (shown >= level.total) return;
    const more = document.createElement("button");
    more.type = "button";
    more.className = "json-more";
    more.textContent = `${level.total - shown} more`;
    more.addEventListener("click", async () => {
      more.remove();
      await this.#level(place, source, path, await source(path, shown));
    });
    place.append(more);
  }

  /**
   * @param {Source} source
   * @param {(string | number)[]} path
   * @param {Entry} entry
   * @param {boolean} open
   */
  async #node(source, path, entry, open) {
    const node = document.createElement("div");
    node.className = "json-node";
    const folds = entry.kind === "object" || entry.kind === "array";
    const line = document.createElement(folds && entry.size ? "button" : "span");
    line.className = "json-line";
    const words = document.createElement("span");
    if (entry.key !== "") words.append(word("json-key", typeof entry.key === "number" ? `${entry.key}` : entry.key), ": ");
    words.append(word(`json-${folds ? "note" : entry.kind}`, entry.text));
    line.append(words);
    node.append(line);
    if (entry.more) words.append(word("json-note", ` … ${entry.size} characters`));
    if (line instanceof HTMLButtonElement) {
      line.type = "button";
      line.prepend(icon("chevron-right"));
      line.setAttribute("aria-expanded", "false");
      line.addEventListener("click", () => this.#toggle(line, node, source, path));
      if (open) await this.#toggle(line, node, source, path);
    }
    return node;
  }

  /**
   * @param {HTMLElement} line
   * @param {HTMLElement} node
   * @param {Source} source
   * @param {(string | number)[]} path
   */
  async #toggle(line, node, source, path) {
    const opens = line.getAttribute("aria-expanded") === "false";
    line.setAttribute("aria-expanded", String(opens));
    let children = /** @type {HTMLElement | null} */ (node.querySelector(":scope > .json-children"));
    if (!children) {
      children = document.createElement("div");
      children.className = "json-children";
      node.append(children);
      await this.#level(children, source, path, await source(path, 0));
    }
    children.hidden = !opens;
  }
}

/**
 * @param {string} classes
 * @param {string} text
 */
function word(classes, text) {
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
  return async (path, from) => level(within(value, path), from);
}

/**
 * @param {string} src
 * @returns {Source}
 */
function fromWorker(src) {
  const worker = new Worker(new URL("../workers/json-worker.js", import.meta.url), { type: "module" });
  /** @type {Map<number, { resolve: (level: Level) => void, reject: (error: Error) => void }>} */
  const waiting = new Map();
  let asked = 0;
  worker.onmessage = ({ data }) => {
    const asker = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) asker?.reject(new Error(data.error));
    else asker?.resolve(data.level);
  };
  worker.postMessage({ src: new URL(src, location.href).href });
  return (path, from) =>
    new Promise((resolve, reject) => {
      waiting.set(++asked, { resolve, reject });
      worker.postMessage({ id: asked, path, from });
    });
}

customElements.define("json-view", JsonView);
