/** The dialogs of the playground: save a column as a commit, and share the setting. */
import { requestJson, RequestFailed } from "./requests.js";

/**
 * @typedef {import("./types.js").Config} Config
 * @typedef {import("./types.js").Setting} Setting
 * @typedef {import("./types.js").State} State
 * @typedef {{ repo: string, commit_hash: string, url: string }} SavedCommit
 */

/**
 * Ask for the prompt and the message of a commit and save it. Resolves to the commit, or to null if the dialog is closed.
 *
 * @param {HTMLDialogElement} dialog
 * @param {Setting} setting
 * @param {Config} config
 * @returns {Promise<SavedCommit | null>}
 */
export function openCommitDialog(dialog, setting, config) {
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form[data-commit]"));
  const repo = field(form, "repo");
  const message = field(form, "message");
  const note = /** @type {HTMLElement} */ (dialog.querySelector("[data-commit-note]"));
  const problem = /** @type {HTMLElement} */ (dialog.querySelector("[data-commit-error]"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("[type=submit]"));
  form.reset();
  repo.value = setting.prompt?.repo ?? "";
  problem.hidden = true;
  const findParent = () => {
    const name = repo.value.trim();
    const known = config.prompts.find((prompt) => prompt.repo === name);
    if (setting.prompt?.repo === name) return { parent: setting.prompt.commit, isNew: false };
    return { parent: known?.head ?? null, isNew: !known };
  };
  const describe = () => {
    const { parent, isNew } = findParent();
    note.textContent = !repo.value.trim()
      ? ""
      : isNew
        ? "A new prompt."
        : parent
          ? `The parent is ${parent.slice(0, 8)}.`
          : "The first commit of this prompt.";
    button.textContent = isNew && repo.value.trim() ? "Create prompt and commit" : "Commit";
  };
  describe();
  dialog.showModal();
  (repo.value ? message : repo).focus();
  return new Promise((resolve) => {
    /** @type {SavedCommit | null} */
    let saved = null;
    const listeners = new AbortController();
    const options = { signal: listeners.signal };
    repo.addEventListener("input", describe, options);
    form.addEventListener(
      "submit",
      async (event) => {
        event.preventDefault();
        const { parent, isNew } = findParent();
        button.disabled = true;
        try {
          saved = await requestJson(config.urls.commits, {
            method: "POST",
            body: {
              repo: repo.value.trim(),
              setting,
              parent,
              message: message.value.trim(),
              tags: field(form, "tags")
                .value.split(",")
                .map((tag) => tag.trim())
                .filter(Boolean),
              create: isNew,
            },
          });
          dialog.close();
        } catch (error) {
          if (!(error instanceof RequestFailed)) throw error;
          problem.textContent =
            error.problem.code === "commit_conflict"
              ? "A newer commit exists. Open the prompt to see the difference, and commit from there."
              : error.message;
          problem.hidden = false;
        } finally {
          button.disabled = false;
        }
      },
      options,
    );
    dialog.addEventListener(
      "close",
      () => {
        listeners.abort();
        resolve(saved);
      },
      { once: true },
    );
  });
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

/**
 * @param {HTMLFormElement} form
 * @param {string} name
 */
function field(form, name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
}
