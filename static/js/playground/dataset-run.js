/** Runs the columns over a dataset: the estimate before, the progress of each letter, and the table of results. */
import { formatCompact, formatDuration, formatMoney } from "../lib/formatting.js";
import { createIcon } from "../lib/icons.js";
import { showToast } from "../lib/toast.js";
import { createElement } from "./reply-view.js";
import { requestJson } from "./requests.js";
import { LETTERS, readText } from "./settings.js";

/**
 * @typedef {import("./types.js").Config} Config
 * @typedef {import("./types.js").Column} Column
 * @typedef {import("./types.js").DatasetChoice} DatasetChoice
 * @typedef {import("./types.js").Message} Message
 * @typedef {{ id: string, letter: string, experiment_id: string, experiment_name: string, experiment_url: string,
 *   dataset_id: string, status: string, total: number, done: number, failed: number, running: number, cost: number | null,
 *   remaining_seconds: number | null, error: string | null }} Job
 * @typedef {{ examples: number, runs: number, columns: { letter: string, matching: number, missing: string[],
 *   cost: number | null }[], cost: number | null }} Estimate
 * @typedef {{ trace_url: string | null, status: string, message: Message | null, partial: string | null, error: string | null,
 *   latency_ms: number | null, usage: { input_tokens: number, output_tokens: number } | null, cost: number | null }} Cell
 * @typedef {{ example_id: string, inputs: unknown, reference: unknown, results: Record<string, Cell[]> }} Row
 */

const POLL_MS = 1_000;
const PAGE_SIZE = 50;
/** Characters of the end of a reply that is still written. */
const MAX_PARTIAL = 280;
const OPEN = new Set(["running", "cancelling"]);

export class DatasetRun {
  /** @type {Job[]} */
  #jobs = [];
  #offset = 0;
  #total = 0;
  /** Which rows are shown. @type {"all" | "running" | "failed"} */
  #shown = "all";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** The last drawn rows, so that an unchanged table is left alone. */
  #drawn = "";

  /**
   * @param {HTMLElement} section
   * @param {Config} config
   * @param {() => void} onChange
   */
  constructor(section, config, onChange) {
    this.section = section;
    this.config = config;
    this.onChange = onChange;
    for (const button of this.#showButtons)
      button.addEventListener("click", () => this.#show(button.dataset.show ?? "all"));
  }

  get #showButtons() {
    return /** @type {NodeListOf<HTMLButtonElement>} */ (
      this.section.querySelectorAll("[data-show]")
    );
  }

  /** @param {string} shown */
  #show(shown) {
    this.#shown = shown === "running" || shown === "failed" ? shown : "all";
    this.#offset = 0;
    return this.#turn(0);
  }

  get isRunning() {
    return this.#jobs.some((job) => OPEN.has(job.status));
  }

  get jobIds() {
    return this.#jobs.map((job) => job.id);
  }

  disconnect() {
    clearTimeout(this.#timer);
  }

  /**
   * @param {Record<string, unknown>} body
   * @returns {Promise<Estimate>}
   */
  estimate(body) {
    return requestJson(this.config.urls.estimate, { method: "POST", body });
  }

  /** @param {Record<string, unknown>} body */
  async start(body) {
    const { jobs } = await requestJson(this.config.urls.experiments, { method: "POST", body });
    this.#jobs = jobs;
    this.#offset = 0;
    this.#shown = "all";
    this.#drawn = "";
    this.#draw();
    this.onChange();
    this.#schedule();
  }

  /** Show jobs that an earlier page started. @param {string[]} ids */
  async restore(ids) {
    if (!ids.length) return;
    try {
      await this.#load(ids);
    } catch {
      // The jobs were deleted meanwhile.
    }
  }

  async cancel() {
    await this.#command("cancel", (job) => job.status === "running");
  }

  /**
   * @param {"cancel" | "resume"} command
   * @param {(job: Job) => boolean} isConcerned
   */
  async #command(command, isConcerned) {
    const jobs = this.#jobs.filter(isConcerned);
    try {
      const changed = await Promise.all(
        jobs.map((job) =>
          requestJson(`${this.config.urls.job.replace("JOB", job.id)}/${command}`, {
            method: "POST",
          }),
        ),
      );
      this.#jobs = this.#jobs.map((job) => changed.find((item) => item.id === job.id) ?? job);
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
    this.#draw();
    this.onChange();
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      const wasRunning = this.isRunning;
      try {
        if (!document.hidden) await this.#load(this.jobIds);
      } catch {
        // A lost connection is tried again with the next interval.
      }
      if (wasRunning) this.#schedule();
    }, POLL_MS);
  }

  /** @param {string[]} ids */
  async #load(ids) {
    const wasRunning = this.isRunning;
    const jobs = ids.join(",");
    const progress = await requestJson(`${this.config.urls.experiments}?jobs=${jobs}`);
    this.#jobs = progress.jobs;
    const query = `jobs=${jobs}&offset=${this.#offset}&limit=${PAGE_SIZE}&show=${this.#shown}`;
    const page = await requestJson(`${this.config.urls.rows}?${query}`);
    this.#total = page.total;
    this.#draw();
    this.#drawRows(page.rows);
    if (this.isRunning && !wasRunning) this.#schedule();
    this.onChange();
  }

  /** @param {string} name */
  #part(name) {
    return /** @type {HTMLElement} */ (this.section.querySelector(`[data-${name}]`));
  }

  #draw() {
    this.section.hidden = !this.#jobs.length;
    this.#part("progress").replaceChildren(...this.#jobs.map((job) => this.#createProgress(job)));
    const ids = new URLSearchParams(this.#jobs.map((job) => ["e", job.experiment_id]));
    const link = /** @type {HTMLAnchorElement} */ (this.#part("compare"));
    const base = link.dataset.href ?? "";
    link.href = `${base.replace("DATASET", this.#jobs[0]?.dataset_id ?? "")}?${ids}`;
    link.hidden = !this.#jobs.length;
    const counts = {
      all: "",
      running: sum(this.#jobs.map((job) => job.running)),
      failed: sum(this.#jobs.map((job) => job.failed)),
    };
    for (const button of this.#showButtons) {
      const shown = /** @type {keyof typeof counts} */ (button.dataset.show ?? "all");
      button.ariaPressed = String(shown === this.#shown);
      const count = /** @type {HTMLElement} */ (button.querySelector(".count"));
      count.textContent = String(counts[shown] || "");
    }
  }

  /** @param {Job} job */
  #createProgress(job) {
    const item = createElement("li", `play-progress hue-${hue(job.letter)}`);
    const link = /** @type {HTMLAnchorElement} */ (
      createElement("a", "truncate", job.experiment_name)
    );
    link.href = job.experiment_url;
    const bar = document.createElement("progress");
    bar.className = "progress";
    bar.max = Math.max(1, job.total);
    bar.value = job.done;
    bar.ariaLabel = `Progress of ${job.letter}`;
    const note = createElement("span", "play-progress-note", describeProgress(job));
    item.append(createElement("span", "compare-letter", job.letter), link, bar, note);
    if (job.error) item.append(createElement("span", "is-error", job.error));
    const canResume =
      job.status === "cancelled" ||
      job.status === "failed" ||
      (job.status === "completed" && job.failed > 0);
    if (job.status === "running")
      item.append(
        createButton("Cancel", "ban", () => this.#command("cancel", ({ id }) => id === job.id)),
      );
    else if (canResume)
      item.append(
        createButton("Resume", "play", () => this.#command("resume", ({ id }) => id === job.id)),
      );
    return item;
  }

  /** @param {Row[]} rows */
  #drawRows(rows) {
    const key = JSON.stringify([rows, this.#jobs.map((job) => job.letter), this.#offset]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    const letters = this.#jobs.map((job) => job.letter);
    const head = document.createElement("tr");
    head.append(
      createHead("comparison-inputs", "Inputs"),
      createHead("comparison-reference", "Reference output"),
    );
    for (const letter of letters) {
      const cell = createHead(`comparison-output hue-${hue(letter)}`, "");
      const title = createElement("span", "comparison-head");
      const job = this.#jobs.find((item) => item.letter === letter);
      title.append(
        createElement("span", "compare-letter", letter),
        createElement("span", "", job?.experiment_name ?? ""),
      );
      cell.append(title);
      head.append(cell);
    }
    this.#part("rows-head").replaceChildren(head);
    this.#part("rows").replaceChildren(
      ...(rows.length
        ? rows.map((row) => createRow(row, letters))
        : [this.#createEmptyRow(letters.length + 2)]),
    );
    const last = this.#offset + rows.length;
    this.#part("rows-count").textContent = this.#total
      ? `${this.#offset + 1}–${last} of ${this.#total} examples`
      : "";
    const pager = this.#part("rows-pager");
    pager.replaceChildren();
    if (this.#offset) pager.append(createButton("Previous", "", () => this.#turn(-PAGE_SIZE)));
    if (last < this.#total) pager.append(createButton("Next", "", () => this.#turn(PAGE_SIZE)));
  }

  /** Say why there are no rows. @param {number} width in columns */
  #createEmptyRow(width) {
    const line = document.createElement("tr");
    const cell = /** @type {HTMLTableCellElement} */ (createElement("td", "play-no-rows"));
    cell.colSpan = width;
    if (this.#shown !== "all")
      cell.textContent = this.#shown === "running" ? "No call is open." : "No call has failed.";
    else if (!sum(this.#jobs.map((job) => job.total)))
      cell.textContent = "No example of the dataset was run.";
    else {
      const link = document.createElement("a");
      link.href = /** @type {HTMLAnchorElement} */ (this.#part("compare")).href;
      link.textContent = "Compare the experiments";
      cell.append("The rows are shown here for a day. Their results are kept: ", link, ".");
    }
    line.append(cell);
    return line;
  }

  /** @param {number} step */
  async #turn(step) {
    this.#offset = Math.max(0, this.#offset + step);
    try {
      await this.#load(this.jobIds);
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
  }
}

/** @param {Job} job */
function describeProgress(job) {
  const parts = [`${job.done} of ${job.total}`];
  if (job.failed) parts.push(`${job.failed} failed`);
  if (job.cost !== null) parts.push(formatMoney(job.cost));
  if (OPEN.has(job.status) && job.remaining_seconds !== null)
    parts.push(`about ${formatWait(job.remaining_seconds)}`);
  if (job.status === "cancelling") parts.push("stopping");
  else if (job.status !== "running") parts.push(job.status);
  return parts.join(", ");
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/** @param {number} seconds */
function formatWait(seconds) {
  return seconds < 60 ? `${Math.max(1, Math.round(seconds))} s` : formatDuration(seconds * 1_000);
}

/** The hue of a letter; there are six. @param {string} letter */
function hue(letter) {
  return (LETTERS.indexOf(letter) % 6) + 1;
}

/**
 * @param {string} text
 * @param {string} icon
 * @param {() => void} onClick
 */
function createButton(text, icon, onClick) {
  const button = /** @type {HTMLButtonElement} */ (
    createElement("button", "button button-small", text)
  );
  button.type = "button";
  if (icon) button.prepend(createIcon(icon));
  button.addEventListener("click", onClick);
  return button;
}

/**
 * @param {string} classes
 * @param {string} text
 */
function createHead(classes, text) {
  const cell = /** @type {HTMLTableCellElement} */ (createElement("th", classes, text));
  cell.scope = "col";
  return cell;
}

/**
 * @param {Row} row
 * @param {string[]} letters
 */
function createRow(row, letters) {
  const line = document.createElement("tr");
  line.id = `example-${row.example_id}`;
  const inputs = createElement("td", "comparison-inputs");
  inputs.append(createElement("span", "comparison-text", formatValue(row.inputs)));
  const reference = createElement("td", "comparison-reference");
  reference.append(
    createElement("span", "only-narrow comparison-label", "Reference"),
    row.reference
      ? createElement("span", "comparison-text secondary", formatValue(row.reference))
      : createElement("span", "muted", "–"),
  );
  line.append(inputs, reference);
  for (const letter of letters) {
    const cell = createElement("td", `comparison-output hue-${hue(letter)}`);
    const label = createElement("span", "only-narrow comparison-label");
    label.append(createElement("span", "compare-letter", letter));
    cell.append(label, ...(row.results[letter] ?? []).map(createResult));
    if (!row.results[letter]?.length) cell.append(createElement("span", "muted", "No run"));
    line.append(cell);
  }
  return line;
}

/** @param {Cell} result */
function createResult(result) {
  const block = createElement("div", "play-cell");
  const text = result.message ? readText(result.message) : "";
  const calls = (result.message?.tool_calls ?? []).map((call) => call.name).join(", ");
  if (result.status === "pending") block.append(createElement("span", "muted", "Waiting"));
  else if (result.status === "running" && result.partial) {
    const text = createElement(
      "span",
      "comparison-text play-partial",
      result.partial.slice(-MAX_PARTIAL),
    );
    text.ariaBusy = "true";
    block.append(text);
  } else if (result.status === "running") {
    const skeleton = createElement("span", "skeleton");
    skeleton.append(document.createElement("i"));
    skeleton.ariaLabel = "Running";
    skeleton.role = "img";
    block.append(skeleton);
  } else if (result.status === "cancelled")
    block.append(createElement("span", "muted", "Cancelled"));
  else if (result.error) {
    const [line = ""] = result.error.split("\n");
    block.append(createElement("span", "comparison-text is-error", `Failed: ${line}`));
  } else
    block.append(
      createElement("span", "comparison-text", text || (calls ? `Calls ${calls}` : "Empty reply")),
    );
  const figures = createElement("span", "comparison-figures");
  if (result.latency_ms !== null)
    figures.append(createElement("span", "", formatDuration(result.latency_ms)));
  if (result.usage)
    figures.append(
      createElement(
        "span",
        "",
        `${formatCompact(result.usage.input_tokens)} → ${formatCompact(result.usage.output_tokens)}`,
      ),
    );
  if (result.cost !== null) figures.append(createElement("span", "", formatMoney(result.cost)));
  if (result.trace_url) {
    const link = document.createElement("a");
    link.href = result.trace_url;
    link.textContent = "Open run";
    figures.append(link);
  }
  block.append(figures);
  return block;
}

/** @param {unknown} value */
function formatValue(value) {
  if (typeof value === "string") return value;
  if (value && typeof value === "object" && !Array.isArray(value)) {
    const entries = Object.values(value);
    if (entries.length === 1 && typeof entries[0] === "string") return entries[0];
  }
  return JSON.stringify(value);
}
