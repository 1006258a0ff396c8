/**
 * <import-wizard data-progress="/…/import/ID"><form>… <input type="file"> … [data-mapping] … [data-progress-bar hidden]</form></import-wizard>:
 * previews the chosen file and each change of the mapping without leaving the page, and imports it with progress and a cancel button.
 */
import { showToast } from "../lib/toast.js";

const PREVIEW_BYTES = 1_000_000;
const CHANGE_DELAY_MS = 400;
const POLL_INTERVAL_MS = 700;

class ImportWizard extends HTMLElement {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #changeTimer;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #pollTimer;
  /** @type {AbortController | undefined} */
  #preview;
  /** @type {XMLHttpRequest | undefined} */
  #upload;

  connectedCallback() {
    this.querySelector("[data-first-preview]")?.remove();
    this.querySelector("[data-no-script]")?.remove();
    this.addEventListener("change", this.#handleChange);
    this.addEventListener("input", this.#handleInput);
    this.addEventListener("submit", this.#handleSubmit);
    this.querySelector("[data-cancel]")?.addEventListener("click", this.#cancel);
  }

  disconnectedCallback() {
    clearTimeout(this.#changeTimer);
    clearInterval(this.#pollTimer);
    this.#preview?.abort();
    this.#upload?.abort();
  }

  get #form() {
    return /** @type {HTMLFormElement} */ (this.querySelector("form"));
  }

  get #file() {
    const input = /** @type {HTMLInputElement | null} */ (this.querySelector("input[type=file]"));
    return input?.files?.[0];
  }

  get #mapping() {
    return /** @type {HTMLElement} */ (this.querySelector("[data-mapping]"));
  }

  #handleChange = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLElement} */ (event.target);
    if (field.matches("input[type=file]")) this.#mapping.replaceChildren();
    if (field.matches("[name=name]")) return;
    this.#showPreview();
  };

  #handleInput = (/** @type {Event} */ event) => {
    if (!(/** @type {HTMLElement} */ (event.target).matches('[name^="key-"]'))) return;
    // Its response has the key as it was before.
    this.#preview?.abort();
    clearTimeout(this.#changeTimer);
    this.#changeTimer = setTimeout(() => this.#showPreview(), CHANGE_DELAY_MS);
  };

  #handleSubmit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
    if (button?.value === "import") this.#import();
    else this.#showPreview();
  };

  /** Send the beginning of the file with the mapping, and show what the server returns. */
  async #showPreview() {
    clearTimeout(this.#changeTimer);
    const file = this.#file;
    if (!file) return;
    const data = new FormData(this.#form);
    data.set("step", "preview");
    if (file.size > PREVIEW_BYTES) {
      data.set("file", await cutFile(file), file.name);
      data.set("is_beginning", "1");
    }
    this.#preview?.abort();
    const preview = (this.#preview = new AbortController());
    this.#mapping.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(this.#form.action || location.href, {
        method: "POST",
        body: data,
        signal: preview.signal,
        headers: { "HX-Request": "true", Accept: "text/html" },
      });
      if (!response.ok && response.status !== 422) throw new Error(String(response.status));
      this.#replaceMapping(await response.text());
    } catch {
      if (!preview.signal.aborted) showToast("The file could not be read. Try again.", "error");
    } finally {
      if (this.#preview === preview) this.#mapping.removeAttribute("aria-busy");
    }
  }

  /** @param {string} html */
  #replaceMapping(html) {
    const active = /** @type {HTMLInputElement | null} */ (document.activeElement);
    const name = active && this.#mapping.contains(active) ? active.name : "";
    const range =
      name && active?.tagName === "INPUT" ? [active.selectionStart, active.selectionEnd] : [];
    this.#mapping.innerHTML = html;
    const field = name && this.#mapping.querySelector(`[name="${CSS.escape(name)}"]`);
    if (!(field instanceof HTMLElement)) return;
    field.focus();
    if (field instanceof HTMLInputElement)
      field.setSelectionRange(range[0] ?? null, range[1] ?? null);
  }

  #import() {
    if (!this.#file) {
      showToast("Choose a file.", "error");
      return;
    }
    clearTimeout(this.#changeTimer);
    this.#preview?.abort();
    const data = new FormData(this.#form);
    data.set("step", "import");
    const upload = (this.#upload = new XMLHttpRequest());
    upload.open("POST", this.#form.action || location.href);
    upload.setRequestHeader("HX-Request", "true");
    upload.setRequestHeader("Accept", "text/html");
    upload.upload.addEventListener("progress", (event) =>
      this.#showProgress("Uploading", event.loaded, event.total),
    );
    upload.upload.addEventListener("load", () => this.#pollProgress());
    upload.addEventListener("load", () => this.#finish(upload));
    upload.addEventListener("error", () => this.#stop("The import failed. Nothing was imported."));
    this.#setBusy(true);
    this.#showProgress("Uploading", 0, 1);
    upload.send(data);
  }

  /** @param {XMLHttpRequest} upload */
  #finish(upload) {
    const url = upload.getResponseHeader("HX-Redirect");
    if (url) {
      location.assign(url);
      return;
    }
    this.#stop("");
    if (upload.status === 413) showToast("The file is too large.", "error");
    else if (upload.status !== 200 && upload.status !== 422)
      showToast("The import failed. Nothing was imported.", "error");
    else this.#replaceMapping(upload.responseText);
  }

  #pollProgress() {
    clearInterval(this.#pollTimer);
    this.#showProgress("Importing", 0, 0);
    this.#pollTimer = setInterval(async () => {
      const response = await fetch(this.dataset.progress ?? "", {
        headers: { Accept: "application/json" },
      }).catch(() => null);
      if (!response?.ok || !this.#upload) return;
      const { count } = await response.json();
      if (this.#upload) this.#showProgress(`Importing: ${count.toLocaleString("en")} rows`, 0, 0);
    }, POLL_INTERVAL_MS);
  }

  #cancel = async () => {
    if (!this.#pollTimer) {
      this.#upload?.abort();
      this.#stop("The import was cancelled. Nothing was imported.");
      return;
    }
    const token = /** @type {HTMLInputElement} */ (
      this.#form.elements.namedItem("csrfmiddlewaretoken")
    );
    await fetch(this.dataset.progress ?? "", {
      method: "POST",
      headers: { "X-CSRFToken": token.value, Accept: "application/json" },
    });
  };

  /** @param {string} problem */
  #stop(problem) {
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
    this.#upload = undefined;
    this.#setBusy(false);
    if (problem) showToast(problem, "error");
  }

  /** @param {boolean} isBusy */
  #setBusy(isBusy) {
    this.querySelector("[data-progress-bar]")?.toggleAttribute("hidden", !isBusy);
    this.#mapping.toggleAttribute("inert", isBusy);
  }

  /**
   * @param {string} text
   * @param {number} value
   * @param {number} max zero for an unknown amount
   */
  #showProgress(text, value, max) {
    const bar = /** @type {HTMLProgressElement} */ (this.querySelector("progress"));
    if (max) Object.assign(bar, { max, value });
    else bar.removeAttribute("value");
    const label = this.querySelector("[data-progress-text]");
    if (label) label.textContent = text;
  }
}

/**
 * Return the beginning of a file, up to its last whole line.
 *
 * @param {File} file
 */
async function cutFile(file) {
  const bytes = new Uint8Array(await file.slice(0, PREVIEW_BYTES).arrayBuffer());
  const end = bytes.lastIndexOf(10);
  return new Blob([end > 0 ? bytes.subarray(0, end + 1) : bytes]);
}
customElements.define("import-wizard", ImportWizard);
