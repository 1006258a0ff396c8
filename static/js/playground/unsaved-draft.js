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
   * Return the kept draft if it follows the saved one, which no other page has replaced since.
   *
   * @param {string | null} savedAt
   * @returns {State | null}
   */
  load(savedAt) {
    try {
      const kept = JSON.parse(localStorage.getItem(this.#key) ?? "null");
      if (!kept || Date.now() - kept.at > MAX_AGE_MS) return null;
      return readTime(kept.savedAt) === readTime(savedAt) ? kept.state : null;
    } catch {
      return null;
    }
  }
}

/** @param {string | null | undefined} text @returns {number} milliseconds, which is how precise the page's own time is */
function readTime(text) {
  return text ? Math.floor(Date.parse(text)) : 0;
}
