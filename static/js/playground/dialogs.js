/** The dialogs of the playground: save a column as a commit, and share the setting. */
import { createElement } from "./reply-view.js";
import { requestJson, RequestFailed } from "./requests.js";
import { completeSetting, mergeSettings, messagesText } from "./settings.js";

/**
 * @typedef {import("./types.js").Config} Config
 * @typedef {import("./types.js").Setting} Setting
 * @typedef {import("./types.js").State} State
 * @typedef {{ repo: string, commit_hash: string, url: string, setting: Setting }} SavedCommit
 */

/**
 * Ask for the prompt and the message of a commit and save it. Resolves to the commit, or to null if the dialog is closed.
 *
 * If the prompt has a newer commit than the parent, its author's changes can be taken over, or be replaced.
 *
 * @param {HTMLDialogElement} dialog
 * @param {Setting} setting
 * @param {Config} config
 * @returns {Promise<SavedCommit | null>}
 */
export function openCommitDialog(dialog, setting, config) {
  return new Promise((resolve) => {
    const open = new CommitDialog(dialog, setting, config);
    dialog.addEventListener(
      "close",
      () => {
        open.disconnect();
        resolve(open.saved);
      },
      { once: true },
    );
  });
}

class CommitDialog {
  /** @type {SavedCommit | null} */
  saved = null;
  #listeners = new AbortController();
  /** The newer commit on which the column is to be committed. @type {{ repo: string, head: string } | null} */
  #newer = null;

  /**
   * @param {HTMLDialogElement} dialog
   * @param {Setting} setting
   * @param {Config} config
   */
  constructor(dialog, setting, config) {
    this.dialog = dialog;
    this.setting = setting;
    this.config = config;
    this.form = /** @type {HTMLFormElement} */ (dialog.querySelector("form[data-commit]"));
    this.form.reset();
    const repo = this.#field("repo");
    repo.value = setting.prompt?.repo ?? "";
    this.#showProblem("");
    this.#closeConflict();
    this.#describe();
    dialog.showModal();
    (repo.value ? this.#field("message") : repo).focus();
    const { signal } = this.#listeners;
    repo.addEventListener(
      "input",
      () => {
        this.#closeConflict();
        this.#describe();
      },
      { signal },
    );
    this.form.addEventListener("submit", this.#handleSubmit, { signal });
  }

  disconnect() {
    this.#listeners.abort();
  }

  /** @param {string} name */
  #field(name) {
    return /** @type {HTMLInputElement} */ (this.form.elements.namedItem(name));
  }

  /** @param {string} name */
  #part(name) {
    return /** @type {HTMLElement} */ (this.dialog.querySelector(`[data-${name}]`));
  }

  get #button() {
    return /** @type {HTMLButtonElement} */ (this.form.querySelector("[type=submit]"));
  }

  get #repo() {
    return this.#field("repo").value.trim();
  }

  #findParent() {
    const name = this.#repo;
    if (this.#newer?.repo === name) return { parent: this.#newer.head, isNew: false };
    if (this.setting.prompt?.repo === name)
      return { parent: this.setting.prompt.commit, isNew: false };
    const known = this.config.prompts.find((prompt) => prompt.repo === name);
    return { parent: known?.head ?? null, isNew: !known };
  }

  #describe() {
    const { parent, isNew } = this.#findParent();
    this.#part("commit-note").textContent = !this.#repo
      ? ""
      : isNew
        ? "A new prompt."
        : parent
          ? `The parent is ${parent.slice(0, 8)}.`
          : "The first commit of this prompt.";
    this.#button.textContent = isNew && this.#repo ? "Create prompt and commit" : "Commit";
  }

  /** @param {string} text */
  #showProblem(text) {
    const problem = this.#part("commit-error");
    problem.textContent = text;
    problem.hidden = !text;
  }

  #handleSubmit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const { parent, isNew } = this.#findParent();
    const repo = this.#repo;
    this.#button.disabled = true;
    this.#showProblem("");
    const { setting } = this;
    try {
      const commit = await requestJson(this.config.urls.commits, {
        method: "POST",
        body: {
          repo,
          setting,
          parent,
          message: this.#field("message").value.trim(),
          tags: this.#field("tags")
            .value.split(",")
            .map((tag) => tag.trim())
            .filter(Boolean),
          create: isNew,
        },
      });
      this.saved = { ...commit, setting };
      this.dialog.close();
    } catch (error) {
      if (!(error instanceof RequestFailed)) throw error;
      const head = error.problem.errors?.find((item) => item.latest_commit)?.latest_commit;
      if (error.problem.code === "stale_parent" && head)
        await this.#openConflict(repo, parent, head);
      else this.#showProblem(error.message);
    } finally {
      this.#button.disabled = false;
    }
  };

  #closeConflict() {
    this.#newer = null;
    this.#part("conflict").hidden = true;
    this.#button.hidden = false;
  }

  /**
   * Show what the newer commit changed, and the ways to go on.
   *
   * @param {string} repo
   * @param {string | null} parent
   * @param {string} head
   */
  async #openConflict(repo, parent, head) {
    const [base, theirs] = await Promise.all(
      [parent, head].map((commit) => (commit ? this.#loadCommit(repo, commit) : null)),
    ).catch(() => [null, null]);
    const mine = this.setting;
    const panel = this.#part("conflict");
    const title = createElement("p", "", `A newer commit exists: ${head.slice(0, 8)}.`);
    const known = base && theirs ? mergeSettings(base, base, theirs).taken : [];
    if (known.length) title.append(` It changed ${known.join(", ")}.`);
    const link = document.createElement("a");
    const url = this.config.urls.prompt_diff.replace("REPO", repo).replace("COMMIT", head);
    link.href = parent ? `${url}?base=${parent}` : url;
    link.target = "_blank";
    link.textContent = "Open it";
    title.append(" ", link);
    panel.replaceChildren(title);
    if (theirs) panel.append(createDifference(messagesText(theirs), messagesText(mine)));
    const actions = createElement("div", "play-conflict-actions");
    const proceed = (/** @type {string} */ note) => {
      this.#newer = { repo, head };
      this.#button.hidden = false;
      actions.remove();
      this.#describe();
      panel.append(createElement("p", "", note));
      this.#button.focus();
    };
    if (base && theirs)
      actions.append(
        createAction("Rebase", () => {
          const { merged, taken, conflicts } = mergeSettings(base, mine, theirs);
          this.setting = merged;
          proceed(
            taken.length
              ? `Your changes are now based on ${head.slice(0, 8)}, with its ${taken.join(", ")}.`
              : `Your changes are now based on ${head.slice(0, 8)}.`,
          );
          for (const conflict of conflicts) panel.append(this.#createChoice(conflict, mine));
          panel.querySelector("select")?.focus();
        }),
      );
    actions.append(
      createAction("Commit on top", () =>
        proceed(`The commit replaces ${head.slice(0, 8)} with your column.`),
      ),
    );
    panel.append(actions);
    panel.hidden = false;
    this.#button.hidden = true;
    actions.querySelector("button")?.focus();
  }

  /**
   * @param {string} repo
   * @param {string} commit
   * @returns {Promise<Setting>}
   */
  async #loadCommit(repo, commit) {
    const query = new URLSearchParams({ prompt: repo, commit });
    const state = await requestJson(`${this.config.urls.prefill}?${query}`);
    return completeSetting(state.columns[0].setting);
  }

  /**
   * Ask whose version of a part is committed.
   *
   * @param {import("./settings.js").Conflict} conflict
   * @param {Setting} mine
   */
  #createChoice(conflict, mine) {
    const label = createElement("label", "play-conflict-choice", `Both changed ${conflict.name}:`);
    const menu = document.createElement("select");
    menu.className = "input input-small";
    for (const [value, text] of [
      ["mine", "keep mine"],
      ["theirs", "take theirs"],
    ])
      menu.append(new Option(text, value));
    menu.addEventListener("change", () => {
      conflict.take(this.setting, menu.value === "mine" ? mine : undefined);
    });
    label.append(menu);
    return label;
  }
}

/**
 * @param {string} before
 * @param {string} after
 */
function createDifference(before, after) {
  const details = createElement("details", "disclosure");
  const view = document.createElement("diff-view");
  view.setAttribute("before", before);
  view.setAttribute("after", after);
  details.append(createElement("summary", "", "See the difference from yours"), view);
  return details;
}

/**
 * @param {string} text
 * @param {() => void} onClick
 */
function createAction(text, onClick) {
  const button = /** @type {HTMLButtonElement} */ (createElement("button", "button", text));
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

/**
 * Create a read-only link and show it.
 *
 * @param {HTMLDialogElement} dialog
 * @param {State} state
 * @param {Config} config
 */
export async function openShareDialog(dialog, state, config) {
  const link = await requestJson(config.urls.shares, {
    method: "POST",
    body: { title: describeState(state), state },
  });
  const address = new URL(link.url, location.href).href;
  const output = /** @type {HTMLInputElement} */ (dialog.querySelector("[data-share-link]"));
  output.value = address;
  dialog.querySelector("copy-button")?.setAttribute("value", address);
  dialog.showModal();
  output.select();
}

/** @param {State} state */
function describeState(state) {
  const models = new Set(state.columns.map((column) => column.setting.model.model));
  return `Playground with ${[...models].filter(Boolean).join(", ") || "no model"}`.slice(0, 200);
}
