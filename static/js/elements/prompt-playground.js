/**
 * <prompt-playground>…</prompt-playground>: up to ten columns with prompts, their variables, and their runs, by hand or over a
 * dataset. The configuration is the JSON of `#play-config`. Ctrl+Enter runs, Alt with a letter runs one column, Escape
 * stops, Ctrl+D duplicates a column, V shows the differences from column A.
 */
import { createIcon } from "../lib/icons.js";
import { isShortcut } from "../lib/keyboard.js";
import { showToast } from "../lib/toast.js";
import { ColumnResults } from "../playground/column-results.js";
import { createElement } from "../playground/reply-view.js";
import { requestJson } from "../playground/requests.js";
import { UnsavedDraft } from "../playground/unsaved-draft.js";
import { canonicalJson, LETTERS, listVariables } from "../playground/settings.js";
import { formatMoney } from "../lib/formatting.js";
import "./prompt-column.js";

/**
 * @typedef {import("./prompt-column.js").PromptColumn} PromptColumn
 * @typedef {import("../playground/types.js").Config} Config
 * @typedef {import("../playground/types.js").Setting} Setting
 * @typedef {import("../playground/types.js").State} State
 * @typedef {import("../playground/types.js").DatasetChoice} DatasetChoice
 * @typedef {import("../playground/types.js").RunInput} RunInput
 * @typedef {import("../playground/dataset-run.js").DatasetRun} DatasetRun
 * @typedef {import("../playground/dataset-run.js").Estimate} Estimate
 * @typedef {{ column: PromptColumn, results: ColumnResults }} Entry
 */

const SAVE_DELAY_MS = 2_000;
const ESTIMATE_DELAY_MS = 500;
const CONFIRMED_DOLLARS = 1;

class PromptPlayground extends HTMLElement {
  /** @type {Config} */
  #config = JSON.parse(document.getElementById("play-config")?.textContent ?? "{}");
  #unsaved = new UnsavedDraft(this.#config.owner);
  /** @type {Entry[]} */
  #entries = [];
  /** @type {Record<string, unknown>} */
  #variables = {};
  /** @type {DatasetRun | undefined} */
  #datasetRun;
  /** @type {Promise<DatasetRun> | undefined} */
  #datasetRunPromise;
  /** The ids of the jobs of the stored state. @type {string[]} */
  #storedJobs = [];
  /** @type {Estimate | null} */
  #estimate = null;
  #isConfirming = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #saveTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #estimateTimer;
  #isDiff = false;
  #isReady = false;

  connectedCallback() {
    if (this.#isReady) return;
    this.#isReady = true;
    const { recorded, catalogue } = this.#config;
    const unsaved = this.#loadUnsaved();
    const state = unsaved ?? this.#config.state;
    this.#variables = { ...state.variables };
    const columns = /** @type {PromptColumn[]} */ ([...this.querySelectorAll("prompt-column")]);
    for (const column of columns.splice(state.columns.length)) column.remove();
    while (columns.length < state.columns.length) {
      const column = this.#createColumn();
      column.letter = LETTERS[columns.length] ?? "J";
      columns.push(column);
    }
    for (const [index, column] of columns.entries()) {
      const setting = state.columns[index]?.setting;
      if (!setting) continue;
      column.fill(setting, catalogue);
      const entry = this.#addEntry(column);
      const reply = recorded[index];
      if (reply) entry.results.pin(reply, this.#inputOf(entry));
      this.#loadBaseline(column);
    }
    this.addEventListener("setting-change", this.#handleChange);
    this.addEventListener("column-action", this.#handleAction);
    this.addEventListener("click", this.#handleClick);
    this.addEventListener("input", this.#handleInput);
    this.addEventListener("focusin", this.#handleFocus);
    document.addEventListener("keydown", this.#handleKeydown);
    window.addEventListener("pagehide", this.#flush);
    const { repeat, source, jobs } = state.view;
    this.#field("[data-repeat]").value = String(repeat ?? 1);
    this.#drawVariables();
    this.#setSource(source === "dataset" ? "dataset" : "hand");
    if (state.dataset) this.#restoreDataset(state.dataset);
    if (Array.isArray(jobs) && jobs.length) {
      this.#storedJobs = jobs.map(String);
      this.#loadDatasetRun();
    }
    if (this.#config.is_read_only) this.#lock();
    this.#refresh();
    if (unsaved) this.#saveNow();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#handleKeydown);
    window.removeEventListener("pagehide", this.#flush);
    for (const { results } of this.#entries) results.stop();
    this.#datasetRun?.disconnect();
    this.#flush();
    clearTimeout(this.#estimateTimer);
  }

  /** @param {string} selector */
  #find(selector) {
    return /** @type {HTMLElement} */ (this.querySelector(selector));
  }

  /** @param {string} selector */
  #field(selector) {
    return /** @type {HTMLInputElement} */ (this.querySelector(selector));
  }

  get #isOverDataset() {
    return this.#find("[data-by-hand]").hidden;
  }

  get #repetitions() {
    return Number(this.#field("[data-repeat]").value) || 1;
  }

  /** @param {PromptColumn} column */
  #addEntry(column) {
    const results = new ColumnResults(column.results, {
      urls: this.#config.urls,
      catalogue: this.#config.catalogue,
      letter: () => column.letter,
      onTake: (messages) => column.addMessages(messages),
      onChange: () => this.#refresh(),
    });
    const entry = { column, results };
    this.#entries.push(entry);
    return entry;
  }

  /** Read the commit from which the column comes, to mark changes against it. @param {PromptColumn} column */
  async #loadBaseline(column) {
    const prompt = column.prompt;
    if (!prompt) return;
    const query = new URLSearchParams({ prompt: prompt.repo, commit: prompt.commit });
    try {
      const state = await requestJson(`${this.#config.urls.prefill}?${query}`);
      if (state.columns[0]) column.setBaseline(state.columns[0].setting);
    } catch {
      // The prompt was deleted: there is nothing to compare with.
    }
  }

  /** @returns {State} */
  get #state() {
    return {
      columns: this.#entries.map(({ column }) => ({
        letter: column.letter,
        setting: column.setting,
      })),
      variables: this.#variables,
      dataset: this.#datasetChoice,
      view: {
        source: this.#isOverDataset ? "dataset" : "hand",
        repeat: this.#repetitions,
        jobs: this.#datasetRun?.jobIds ?? this.#storedJobs,
      },
    };
  }

  /** @param {Entry} entry @returns {RunInput} */
  #inputOf({ column }) {
    const { setting } = column;
    const { names, lists } = listVariables(setting);
    /** @type {Record<string, unknown>} */
    const variables = {};
    for (const name of names) variables[name] = String(this.#variables[name] ?? "");
    for (const name of lists) variables[name] = readList(this.#variables[name]);
    return { setting, variables };
  }

  /** The columns whose setting or variables changed since their last run. */
  get #changed() {
    return this.#entries.filter(
      (entry) => canonicalJson(entry.results.lastInput) !== canonicalJson(this.#inputOf(entry)),
    );
  }

  /* Running */

  /** @param {Entry[]} entries */
  #run(entries) {
    if (!this.#config.catalogue.may_run || this.#config.is_read_only) return;
    const problem = entries.flatMap(({ column }) =>
      column.problems.map((text) => `${column.letter}: ${text}`),
    )[0];
    if (problem) {
      showToast(problem, "error");
      return;
    }
    const missing = this.#findMissingVariable(entries);
    if (missing) {
      this.#showVariables();
      missing.focus();
      showToast(`Fill in ${missing.dataset.variable}.`, "error");
      return;
    }
    for (const entry of entries) {
      entry.results.run(this.#inputOf(entry), this.#repetitions).then(() => {
        this.#announce(`Column ${entry.column.letter} ${entry.results.outcome}.`);
        this.#updateDiff();
      });
    }
  }

  /** @param {Entry[]} entries */
  #findMissingVariable(entries) {
    const names = new Set(
      entries.flatMap(({ column }) => {
        const { names: texts, lists } = listVariables(column.setting);
        return [...texts, ...lists];
      }),
    );
    const fields = /** @type {NodeListOf<HTMLTextAreaElement>} */ (
      this.querySelectorAll("[data-variable]")
    );
    return [...fields].find((field) => names.has(field.dataset.variable ?? "") && !field.value);
  }

  /** Run what changed; everything if nothing or all of it did. */
  #runAll() {
    if (this.#isOverDataset) {
      this.#startExperiment();
      return;
    }
    const changed = this.#changed;
    this.#run(changed.length ? changed : this.#entries);
  }

  #stopAll() {
    if (this.#isOverDataset) this.#datasetRun?.cancel();
    for (const { results } of this.#entries) results.stop();
  }

  get #isRunning() {
    return (
      this.#entries.some(({ results }) => results.isRunning) ||
      Boolean(this.#isOverDataset && this.#datasetRun?.isRunning)
    );
  }

  /* Over a dataset */

  /** Load the module on first use, and the jobs of the stored state. */
  #loadDatasetRun() {
    this.#datasetRunPromise ??= import("../playground/dataset-run.js").then(
      async ({ DatasetRun }) => {
        const results = this.#find("[data-dataset-results]");
        const run = new DatasetRun(results, this.#config, () => this.#refresh());
        await run.restore(this.#storedJobs);
        this.#datasetRun = run;
        if (this.isConnected) this.#refresh();
        else run.disconnect();
        return run;
      },
    );
    return this.#datasetRunPromise;
  }

  /** @returns {DatasetChoice | null} */
  get #datasetChoice() {
    const dataset = this.#field("[data-dataset]").value;
    if (!dataset) return null;
    /** @type {Record<string, string>} */
    const mapping = {};
    for (const field of this.querySelectorAll("[data-mapping]")) {
      const { value, dataset: data } = /** @type {HTMLInputElement} */ (field);
      if (data.mapping && value.trim() && value.trim() !== data.mapping)
        mapping[data.mapping] = value.trim();
    }
    const split = this.#field("[data-split]").value;
    return {
      dataset_id: dataset,
      as_of: this.#field("[data-version]").value || null,
      splits: split ? [split] : [],
      mapping,
    };
  }

  /** @param {string | null} [name] */
  #experimentBody(name = null) {
    const choice = this.#datasetChoice;
    if (!choice) return null;
    const { columns } = this.#state;
    const evaluators = /** @type {HTMLInputElement[]} */ ([
      ...this.querySelectorAll("[data-evaluator]"),
    ]);
    return {
      ...choice,
      evaluator_rule_ids: evaluators.length
        ? evaluators.filter((box) => box.checked).map((box) => box.value)
        : null,
      mapping: Object.keys(choice.mapping).length ? choice.mapping : null,
      columns,
      repetitions: this.#repetitions,
      concurrency: 4,
      name,
    };
  }

  async #startExperiment() {
    const body = this.#experimentBody(this.#field("[data-experiment-name]").value.trim() || null);
    if (!body) {
      showToast("Choose a dataset.", "error");
      this.#showVariables();
      this.#field("[data-dataset]").focus();
      return;
    }
    const agent = this.#entries.find(({ column }) => column.agent);
    const problem = agent
      ? `${agent.column.letter} calls an agent. Run agents from the page of the dataset.`
      : this.#entries.flatMap(({ column }) =>
          column.problems.map((text) => `${column.letter}: ${text}`),
        )[0];
    if (problem) {
      showToast(problem, "error");
      return;
    }
    if ((this.#estimate?.cost ?? 0) > CONFIRMED_DOLLARS && !this.#isConfirming) {
      this.#isConfirming = true;
      this.#refresh();
      return;
    }
    this.#isConfirming = false;
    try {
      await (await this.#loadDatasetRun()).start(body);
      this.#announce("The experiments have started.");
      this.#find("[data-dataset-results]").scrollIntoView({ block: "start" });
      // A page that is reloaded at once shows them.
      this.#saveNow();
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
  }

  /** @param {Partial<DatasetChoice>} choice */
  async #restoreDataset(choice) {
    const menu = this.#field("[data-dataset]");
    menu.value = choice.dataset_id ?? "";
    if (!menu.value) return;
    await this.#loadDataset();
    this.#field("[data-version]").value = choice.as_of ?? "";
    this.#field("[data-split]").value = choice.splits?.[0] ?? "";
    this.#drawMapping(choice.mapping ?? {});
    this.#estimateSoon();
  }

  /** Load the versions, splits and fields of the chosen dataset. */
  async #loadDataset() {
    const id = this.#field("[data-dataset]").value;
    this.#find("[data-dataset-fields]").hidden = !id;
    if (!id) return;
    try {
      const dataset = await requestJson(this.#config.urls.dataset.replace("DATASET", id));
      fillOptions(this.#find("[data-version]"), dataset.versions, "Latest version");
      fillOptions(this.#find("[data-split]"), dataset.splits, "All examples");
      this.#find("#play-dataset-fields").replaceChildren(
        ...dataset.fields.map((/** @type {string} */ name) => {
          const option = document.createElement("option");
          option.value = name;
          return option;
        }),
      );
      this.#drawEvaluators(dataset.evaluators);
      this.#drawMapping(this.#datasetChoice?.mapping ?? {});
      this.#estimateSoon();
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
  }

  /**
   * List the enabled evaluators of the dataset, all checked.
   * @param {{ id: string, name: string }[]} evaluators
   */
  #drawEvaluators(evaluators) {
    this.#find("[data-evaluators]").hidden = !evaluators.length;
    this.#find("[data-evaluator-list]").replaceChildren(
      ...evaluators.map(({ id, name }) => {
        const line = document.createElement("div");
        const box = document.createElement("input");
        const label = document.createElement("label");
        line.className = "check";
        box.type = "checkbox";
        box.checked = true;
        box.value = id;
        box.id = `play-evaluator-${id}`;
        box.dataset.evaluator = "";
        label.htmlFor = box.id;
        label.textContent = name;
        line.append(box, label);
        return line;
      }),
    );
  }

  /** @param {Record<string, string>} mapping */
  #drawMapping(mapping) {
    const list = this.#find("[data-mapping-list]");
    const known = /** @type {HTMLInputElement[]} */ ([...list.querySelectorAll("[data-mapping]")]);
    const values = {
      ...Object.fromEntries(known.map((field) => [field.dataset.mapping, field.value])),
      ...mapping,
    };
    list.replaceChildren(
      ...this.#listVariables().map(({ name, letters }) => {
        const label = createVariableLabel(name, letters);
        const field = document.createElement("input");
        field.className = "input input-small input-mono";
        field.setAttribute("list", "play-dataset-fields");
        field.value = values[name] ?? "";
        field.placeholder = name;
        field.dataset.mapping = name;
        field.autocomplete = "off";
        label.append(field);
        return label;
      }),
    );
  }

  #estimateSoon() {
    clearTimeout(this.#estimateTimer);
    this.#isConfirming = false;
    this.#estimateTimer = setTimeout(() => this.#loadEstimate(), ESTIMATE_DELAY_MS);
  }

  async #loadEstimate() {
    const body = this.#isOverDataset ? this.#experimentBody() : null;
    this.#estimate = null;
    const note = this.#find("[data-matching]");
    if (!body || this.#entries.some(({ column }) => column.agent || column.problems.length)) {
      note.textContent = "";
      this.#refresh();
      return;
    }
    try {
      const estimate = await (await this.#loadDatasetRun()).estimate(body);
      this.#estimate = estimate;
      note.replaceChildren(
        ...estimate.columns.map((column) => {
          const missing = column.missing.length ? `, without ${column.missing.join(", ")}` : "";
          const text = `${column.letter}: ${column.matching} of ${estimate.examples} rows match${missing}`;
          return createElement("li", column.missing.length ? "is-error" : "", text);
        }),
      );
    } catch (error) {
      note.textContent = error instanceof Error ? error.message : String(error);
    }
    this.#refresh();
  }

  /* Variables */

  /** @returns {{ name: string, letters: string, isList: boolean }[]} */
  #listVariables() {
    /** @type {Map<string, { letters: string, isList: boolean }>} */
    const usages = new Map();
    for (const { column } of this.#entries) {
      const { names, lists } = listVariables(column.setting);
      for (const name of [...names, ...lists]) {
        const known = usages.get(name);
        if (known) known.letters += column.letter;
        else usages.set(name, { letters: column.letter, isList: lists.includes(name) });
      }
    }
    return [...usages].map(([name, entry]) => ({ name, ...entry }));
  }

  /** Draw the fields of the variables; a field that stays keeps its focus. */
  #drawVariables() {
    const list = this.#find("[data-variable-list]");
    const variables = this.#listVariables();
    const known = new Map(
      /** @type {HTMLElement[]} */ ([...list.children]).map((row) => [row.dataset.name ?? "", row]),
    );
    for (const [name, row] of known)
      if (!variables.some((variable) => variable.name === name)) row.remove();
    for (const [index, { name, letters, isList }] of variables.entries()) {
      const row = known.get(name) ?? this.#createVariable(name);
      const label = row.querySelector("[data-letters]");
      if (label) label.textContent = letters;
      const field = /** @type {HTMLTextAreaElement} */ (row.querySelector("textarea"));
      field.placeholder = isList ? '[{"role": "human", "content": "…"}]' : "";
      field.classList.toggle("input-mono", isList);
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
    }
    this.#find("[data-no-variables]").hidden = variables.length > 0;
    this.#find("[data-variable-count]").textContent = variables.length
      ? String(variables.length)
      : "";
  }

  /** @param {string} name */
  #createVariable(name) {
    const label = createVariableLabel(name, "");
    label.dataset.name = name;
    const field = document.createElement("textarea");
    field.className = "input";
    field.rows = 2;
    field.dataset.variable = name;
    const value = this.#variables[name] ?? "";
    field.value = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    label.append(field);
    return label;
  }

  /** @param {string} source */
  #setSource(source) {
    const isDataset = source === "dataset";
    this.#find("[data-by-hand]").hidden = isDataset;
    this.#find("[data-by-dataset]").hidden = !isDataset;
    for (const button of this.querySelectorAll("[data-source]"))
      button.ariaPressed = String(/** @type {HTMLElement} */ (button).dataset.source === source);
    if (isDataset) {
      this.#drawMapping(this.#datasetChoice?.mapping ?? {});
      this.#estimateSoon();
    }
  }

  /** Open the sheet of the variables, which is a panel on wide screens. */
  #showVariables() {
    this.#find("[data-variables]").toggleAttribute("data-open", true);
  }

  /* Columns */

  /** The column with the focus, else the one that was used last. */
  get #currentEntry() {
    const column = this.querySelector("prompt-column[data-current]");
    return this.#entries.find((entry) => entry.column === column) ?? this.#entries[0];
  }

  /** @param {PromptColumn} column */
  #setCurrent(column) {
    for (const entry of this.#entries)
      entry.column.toggleAttribute("data-current", entry.column === column);
    this.#drawLetters();
  }

  #createColumn() {
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("play-column"));
    const fragment = /** @type {DocumentFragment} */ (document.importNode(template.content, true));
    const column = /** @type {PromptColumn} */ (fragment.querySelector("prompt-column"));
    this.#find("[data-columns]").append(fragment);
    return column;
  }

  /** @param {Setting} setting */
  #addColumn(setting) {
    if (this.#entries.length >= LETTERS.length) {
      showToast(`At most ${LETTERS.length} columns.`, "error");
      return;
    }
    const column = this.#createColumn();
    column.letter = LETTERS[this.#entries.length] ?? "J";
    column.fill(setting, this.#config.catalogue);
    this.#addEntry(column);
    this.#loadBaseline(column);
    this.#setCurrent(column);
    column.scrollIntoView({ block: "nearest", inline: "nearest" });
    column.querySelector("textarea")?.focus({ preventScroll: true });
    this.#afterChange();
  }

  /** @param {Entry} entry */
  #removeColumn(entry) {
    if (this.#entries.length === 1) {
      showToast("The playground has at least one column.", "error");
      return;
    }
    const index = this.#entries.indexOf(entry);
    entry.results.stop();
    entry.column.remove();
    this.#entries.splice(index, 1);
    for (const [position, { column }] of this.#entries.entries())
      column.letter = LETTERS[position] ?? "J";
    const next = this.#entries[Math.max(0, index - 1)];
    if (next) {
      this.#setCurrent(next.column);
      next.column.querySelector("summary")?.focus();
    }
    this.#afterChange();
  }

  /** @param {Entry} entry */
  async #commit({ column }) {
    const dialog = /** @type {HTMLDialogElement} */ (this.#find("#play-commit"));
    const { openCommitDialog } = await import("../playground/dialogs.js");
    const commit = await openCommitDialog(dialog, column.setting, this.#config);
    if (!commit) return;
    // A rebase has changed the setting.
    column.fill(commit.setting, this.#config.catalogue);
    column.markCommitted({ repo: commit.repo, commit: commit.commit_hash });
    const known = this.#config.prompts.find((prompt) => prompt.repo === commit.repo);
    if (known) known.head = commit.commit_hash;
    else this.#config.prompts.push({ repo: commit.repo, head: commit.commit_hash });
    showToast(`Committed as ${commit.repo}, ${commit.commit_hash.slice(0, 8)}.`);
    this.#afterChange();
  }

  async #share() {
    const dialog = /** @type {HTMLDialogElement} */ (this.#find("#play-share"));
    try {
      const { openShareDialog } = await import("../playground/dialogs.js");
      await openShareDialog(dialog, this.#state, this.#config);
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
  }

  /** Take the shared setting as the own draft. */
  async #editCopy() {
    try {
      await requestJson(this.#config.urls.draft, { method: "PUT", body: this.#config.state });
      location.assign(this.#config.urls.page);
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error), "error");
    }
  }

  /* Events */

  #handleChange = () => this.#afterChange();

  #afterChange() {
    this.#drawVariables();
    if (this.#isOverDataset) {
      this.#drawMapping({});
      this.#estimateSoon();
    }
    this.#saveSoon();
    this.#refresh();
  }

  #handleAction = (/** @type {Event} */ event) => {
    const { action } = /** @type {CustomEvent} */ (event).detail;
    const entry = this.#entries.find(({ column }) => column === event.target);
    if (!entry) return;
    if (action === "run") this.#run([entry]);
    else if (action === "stop") entry.results.stop();
    else if (action === "duplicate") this.#addColumn(structuredClone(entry.column.setting));
    else if (action === "remove") this.#removeColumn(entry);
    else if (action === "commit") this.#commit(entry);
    else if (action === "code") this.#copyCode(entry);
  };

  /** @param {Entry} entry */
  async #copyCode(entry) {
    const { setting, variables } = this.#inputOf(entry);
    const { toPython } = await import("../playground/python-code.js");
    try {
      await navigator.clipboard.writeText(toPython(setting, variables));
      showToast("Copied as Python");
    } catch {
      showToast("The browser blocked access to the clipboard.", "error");
    }
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    const has = (/** @type {string} */ name) =>
      /** @type {HTMLElement | null} */ (target.closest(`[data-${name}]`));
    const source = has("source");
    const letter = has("show-letter");
    if (source) {
      this.#setSource(source.dataset.source ?? "hand");
      this.#saveSoon();
      this.#refresh();
    } else if (letter) {
      const entry = this.#entries[Number(letter.dataset.showLetter)];
      if (entry) this.#setCurrent(entry.column);
    } else if (has("run-all")) this.#runAll();
    else if (has("stop-all")) this.#stopAll();
    else if (has("add-column")) {
      const entry = this.#entries.at(-1);
      if (entry) this.#addColumn(structuredClone(entry.column.setting));
    } else if (has("diff")) this.#toggleDiff();
    else if (has("share")) this.#share();
    else if (has("edit-copy")) this.#editCopy();
    else if (has("retry-save")) this.#saveNow();
    else if (has("open-variables")) {
      this.#showVariables();
      this.#find("[data-close-variables]").focus();
    } else if (has("close-variables")) this.#closeVariables();
    else if (target.closest("[data-close-dialog]")) target.closest("dialog")?.close();
  };

  #closeVariables() {
    this.#find("[data-variables]").removeAttribute("data-open");
    this.#find("[data-open-variables]").focus();
  }

  #handleInput = (/** @type {Event} */ event) => {
    const target = /** @type {HTMLInputElement} */ (event.target);
    if (target.dataset.variable) {
      this.#variables[target.dataset.variable] = target.value;
      this.#saveSoon();
      this.#refresh();
    } else if (target.matches("[data-dataset]")) {
      this.#loadDataset();
      this.#saveSoon();
    } else if (target.matches("[data-version], [data-split], [data-mapping], [data-repeat]")) {
      this.#saveSoon();
      if (this.#isOverDataset) this.#estimateSoon();
      this.#refresh();
    }
  };

  #handleFocus = (/** @type {FocusEvent} */ event) => {
    const column = /** @type {Element} */ (event.target).closest("prompt-column");
    if (column && !column.hasAttribute("data-current"))
      this.#setCurrent(/** @type {PromptColumn} */ (column));
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (document.querySelector("dialog[open]")) return;
    const isCommand = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && isCommand) this.#runAll();
    else if (event.altKey && !isCommand && /^Key[A-J]$/.test(event.code)) {
      const entry = this.#entries[LETTERS.indexOf(event.code.slice(3))];
      if (!entry) return;
      this.#run([entry]);
    } else if (event.key === "Escape" && this.#find("[data-variables][data-open]"))
      this.#closeVariables();
    else if (event.key === "Escape" && this.#isRunning) this.#stopAll();
    else if (event.key.toLowerCase() === "d" && isCommand && !event.shiftKey && !event.altKey) {
      const entry = this.#currentEntry;
      if (entry && !this.#config.is_read_only)
        this.#addColumn(structuredClone(entry.column.setting));
    } else if (event.key === "v" && isShortcut(event)) this.#toggleDiff();
    else return;
    event.preventDefault();
  };

  #toggleDiff() {
    if (this.#entries.length < 2) return;
    this.#isDiff = !this.#isDiff;
    this.#updateDiff();
    this.#refresh();
  }

  #updateDiff() {
    const base = this.#isDiff ? (this.#entries[0]?.results.text ?? null) : null;
    for (const [index, { results }] of this.#entries.entries())
      results.showDiff(index ? base : null);
  }

  /* Saving */

  #saveSoon() {
    if (this.#config.is_read_only || !this.#config.catalogue.may_run) return;
    clearTimeout(this.#saveTimer);
    this.#saveTimer = setTimeout(() => this.#save(), SAVE_DELAY_MS);
    this.#showSaved("");
  }

  #saveNow() {
    clearTimeout(this.#saveTimer);
    return this.#save();
  }

  async #save() {
    this.#saveTimer = undefined;
    try {
      const draft = { method: "PUT", body: this.#state };
      const saved = await requestJson(this.#config.urls.draft, draft);
      this.#config.draft_saved_at = saved.updated_at;
      this.#unsaved.forget();
      this.#showSaved("Saved");
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.#showSaved("Not saved");
      const status = this.#find("[data-saved]");
      status.title = text;
      const button = createElement("button", "button button-quiet button-small", "Retry");
      button.dataset.retrySave = "";
      status.append(" ", button);
    }
  }

  /** Save what the timer has not saved yet, as the page closes. */
  #flush = () => {
    if (this.#saveTimer === undefined) return;
    clearTimeout(this.#saveTimer);
    this.#saveTimer = undefined;
    const body = this.#state;
    const keepalive = UnsavedDraft.isSendable(body);
    // A larger draft may still arrive: only the next page knows.
    if (!keepalive) this.#unsaved.keep(body, this.#config.draft_saved_at);
    requestJson(this.#config.urls.draft, { method: "PUT", body, keepalive }).catch(() => undefined);
  };

  /** Return the changes that the last page could not send. */
  #loadUnsaved() {
    const savedAt = this.#config.draft_saved_at;
    return savedAt === undefined ? null : this.#unsaved.load(savedAt);
  }

  /** @param {string} text */
  #showSaved(text) {
    const status = this.#find("[data-saved]");
    status.textContent = text;
    status.removeAttribute("title");
  }

  /* Display */

  #refresh() {
    const { catalogue, is_read_only: isReadOnly } = this.#config;
    const mayRun = catalogue.may_run && !isReadOnly;
    const isRunning = this.#isRunning;
    for (const { column, results } of this.#entries) {
      const run = /** @type {HTMLButtonElement} */ (column.querySelector("[data-run]"));
      const stop = /** @type {HTMLElement} */ (column.querySelector("[data-stop]"));
      run.hidden = results.isRunning || this.#isOverDataset;
      stop.hidden = !results.isRunning;
      run.disabled = !mayRun;
    }
    const button = /** @type {HTMLButtonElement} */ (this.#find("[data-run-all]"));
    button.disabled = !mayRun || (this.#isOverDataset && !this.#config.may_experiment);
    button.hidden = isRunning;
    this.#find("[data-run-all-text]").textContent = this.#runText();
    this.#find("[data-stop-all]").hidden = !isRunning;
    const diff = this.#find("[data-diff]");
    diff.ariaPressed = String(this.#isDiff);
    diff.hidden = this.#entries.length < 2 || this.#isOverDataset;
    /** @type {HTMLButtonElement} */ (this.#find("[data-add-column]")).disabled =
      isReadOnly || this.#entries.length >= LETTERS.length;
    this.#drawLetters();
  }

  #runText() {
    if (this.#isOverDataset) {
      const estimate = this.#estimate;
      if (!estimate) return "Run over the dataset";
      const perColumn = Math.round(estimate.runs / Math.max(1, this.#entries.length));
      const size = `${perColumn} × ${this.#entries.length}`;
      const cost = estimate.cost === null ? "" : `, about ${formatMoney(estimate.cost)}`;
      return this.#isConfirming ? `${size}${cost}. Run` : `Run ${size}`;
    }
    const changed = this.#changed;
    if (this.#entries.length === 1) return "Run";
    if (!changed.length || changed.length === this.#entries.length) return "Run all";
    return `Run ${changed.map(({ column }) => column.letter).join(", ")}`;
  }

  /** The letters from which a narrow screen chooses its column. */
  #drawLetters() {
    const bar = this.#find("[data-letters-bar]");
    bar.hidden = this.#entries.length < 2;
    bar.replaceChildren(
      ...this.#entries.map(({ column, results }, index) => {
        const button = createElement("button", "", column.letter);
        /** @type {HTMLButtonElement} */ (button).type = "button";
        button.dataset.showLetter = String(index);
        button.ariaPressed = String(column.hasAttribute("data-current"));
        if (results.isRunning) button.append(createIcon("loader-circle", "icon-small icon-spin"));
        return button;
      }),
    );
  }

  /** A shared setting is shown, not edited. */
  #lock() {
    for (const field of this.querySelectorAll(
      "prompt-column :is(input, select, textarea, button, fieldset), .play-variables :is(input, select, textarea)",
    ))
      /** @type {HTMLInputElement} */ (field).disabled = true;
  }

  /** @param {string} text */
  #announce(text) {
    this.#find("[data-announce]").textContent = text;
  }
}

/**
 * @param {string} name
 * @param {string} letters
 */
function createVariableLabel(name, letters) {
  const label = createElement("label", "play-variable");
  const head = createElement("span", "play-variable-head");
  const chip = createElement("span", "play-variable-letters", letters);
  chip.dataset.letters = "";
  head.append(createElement("code", "", name), chip);
  label.append(head);
  return label;
}

/**
 * Return the messages that the text of a placeholder lists; a text that is no JSON stays as it is, for the server to refuse.
 *
 * @param {unknown} value
 */
function readList(value) {
  if (typeof value !== "string") return value ?? [];
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/**
 * @param {HTMLElement} menu
 * @param {string[]} values
 * @param {string} emptyLabel
 */
function fillOptions(menu, values, emptyLabel) {
  menu.replaceChildren(
    ...["", ...values].map((value) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = value || emptyLabel;
      return option;
    }),
  );
}

customElements.define("prompt-playground", PromptPlayground);
