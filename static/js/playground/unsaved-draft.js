/**
 * The changes that a closing page could not send. The body of a request that outlives its page has at most 64 KB; a larger
 * draft waits in the browser until the person opens the playground again.
 */

/** @typedef {import("./types.js").State} State */

const MAX_KEEPALIVE_BYTES = 60_000;
const MAX_AGE_MS = 7 * 24 * 3_600_000;

export class UnsavedDraft {
  #key;

  /** @param {string} owner the person and the workspace of the draft */
  constructor(owner) {
    this.#key = `playground-draft ${owner}`;
  }

  /** Whether a request that outlives the page can send the draft. @param {State} state */
  static isSendable(state) {
    return new Blob([JSON.stringify(state)]).size <= MAX_KEEPALIVE_BYTES;
  }

  /**
   * @param {State} state
   * @param {string | null | undefined} savedAt the time of the saved draft that it follows
   */
  keep(state, savedAt) {
    try {
      localStorage.setItem(this.#key, JSON.stringify({ state, savedAt, at: Date.now() }));
    } catch {
      // The storage is full or blocked: what was saved before stays.
    }
  }

  forget() {
    try {
      localStorage.removeItem(this.#key);
    } catch {
      // Nothing is stored in a blocked storage.
    }
  }

  /**
   * Return the kept draft if it follows the saved one. Forget it if that was replaced since: by its own request, which
   * arrived after all, or by another page.
   *
   * @param {string | null} savedAt
   * @returns {State | null}
   */
  load(savedAt) {
    try {
      const kept = JSON.parse(localStorage.getItem(this.#key) ?? "null");
      if (!kept) return null;
      const isRecent = Date.now() - kept.at <= MAX_AGE_MS;
      if (isRecent && readTime(kept.savedAt) === readTime(savedAt)) return kept.state;
      this.forget();
      return null;
    } catch {
      return null;
    }
  }
}

/** @param {string | null | undefined} text @returns {number} milliseconds, which is how precise the page's own time is */
function readTime(text) {
  return text ? Math.floor(Date.parse(text)) : 0;
}
