/**
 * <run-table data-rows="/…?show=llm" [data-live]>: wraps the list of runs. It refreshes running rows,
 * announces new runs or inserts them while Live is on and the pointer is outside the table, loads older runs when the
 * end of the list scrolls into view, and handles row selection (X).
 *
 * Dispatches `row-open` when a row is clicked; `<row-preview>` handles it.
 */
import { isShortcut } from "../lib/keyboard.js";
import { saveList } from "../lib/list-history.js";
import { openRow } from "../lib/row-open.js";
import { showToast } from "../lib/toast.js";

const POLL_INTERVAL_MS = 4000;

class RunTable extends HTMLElement {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;
  /** @type {IntersectionObserver | undefined} */
  #endObserver;
  #loading = false;
  #lastSelected = -1;

  connectedCallback() {
    this.addEventListener("click", this.#handleClick);
    this.addEventListener("change", this.#handleChange);
    document.addEventListener("keydown", this.#handleKeydown);
    addEventListener("pagehide", this.#saveRows);
    this.#endObserver = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && this.#loadMore(),
      { rootMargin: "400px" },
    );
    this.#observeEnd();
    if (this.hasAttribute("data-live") || this.#hasRunningRuns) {
      this.#timer = setInterval(this.#poll, POLL_INTERVAL_MS);
      document.addEventListener("visibilitychange", this.#poll);
    }
    const button = this.#liveButton;
    if (button && this.hasAttribute("data-live")) {
      button.hidden = false;
      this.#setLive(sessionStorage.getItem("live") === "on");
      button.addEventListener("click", () => {
        this.#setLive(!this.#isLive);
        sessionStorage.setItem("live", this.#isLive ? "on" : "");
        this.#poll();
      });
    }
    this.#updateSelection();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    this.#endObserver?.disconnect();
    removeEventListener("pagehide", this.#saveRows);
    document.removeEventListener("keydown", this.#handleKeydown);
    document.removeEventListener("visibilitychange", this.#poll);
  }

  #saveRows = () => saveList(this);

  get #liveButton() {
    return /** @type {HTMLButtonElement | null} */ (this.querySelector("[data-live-button]"));
  }

  get #isLive() {
    return this.#liveButton?.getAttribute("aria-pressed") === "true";
  }

  get #hasRunningRuns() {
    return this.querySelector("table")?.dataset.hasRunning === "true";
  }

  get #boxes() {
    return /** @type {HTMLInputElement[]} */ ([...this.querySelectorAll('input[name="run"]')]);
  }

  /** @param {boolean} live */
  #setLive(live) {
    const button = this.#liveButton;
    if (!button) return;
    button.setAttribute("aria-pressed", String(live));
    const label = button.querySelector("span");
    if (label) label.textContent = live ? "Live" : "Go live";
    button.title = live
      ? "New runs appear automatically. Click to pause."
      : "Click to show new runs automatically.";
  }

  /** Fetch the first page again, update changed rows, and announce or insert new ones. */
  #poll = async () => {
    if (document.visibilityState !== "visible" || this.#loading) return;
    if (!this.hasAttribute("data-live") && !this.#hasRunningRuns) return;
    try {
      const page = await fetchTable(this.dataset.rows ?? "");
      const freshTable =
        page && /** @type {HTMLTableElement | null} */ (page.querySelector("table"));
      if (freshTable) this.#mergeRows(freshTable);
    } catch {
      // The next poll may succeed; the table stays as it is.
    }
  };

  /** @param {HTMLTableElement} freshTable */
  #mergeRows(freshTable) {
    const body = this.querySelector("tbody");
    const newRows = [];
    for (const row of freshTable.querySelectorAll("tbody > tr")) {
      const existing = document.getElementById(row.id);
      if (!existing) newRows.push(row);
      else if (existing.dataset.status !== /** @type {HTMLElement} */ (row).dataset.status)
        this.#replaceRow(existing, row);
    }
    const notice = this.querySelector("[data-new-runs]");
    const canInsert =
      this.#isLive && scrollY < 80 && !this.querySelector(".table-frame:hover, tbody :focus");
    if (body && canInsert) {
      for (const row of newRows.reverse()) {
        row.classList.add("is-new");
        body.prepend(row);
      }
      notice?.replaceChildren();
      if (newRows.length) announceNewRows();
    } else if (notice && this.hasAttribute("data-live")) {
      notice.replaceChildren(
        ...(newRows.length ? [createNewRunsLink(newRows.length, freshTable.rows.length - 1)] : []),
      );
    } else if (!body && newRows.length) location.reload();
  }

  /**
   * @param {HTMLElement} existing
   * @param {Element} row
   */
  #replaceRow(existing, row) {
    const box = /** @type {HTMLInputElement | null} */ (
      existing.querySelector('input[name="run"]')
    );
    const replacement = /** @type {HTMLInputElement | null} */ (
      row.querySelector('input[name="run"]')
    );
    if (box && replacement) replacement.checked = box.checked;
    if (existing.contains(document.activeElement)) return;
    existing.replaceWith(row);
  }

  #observeEnd() {
    const link = this.querySelector("[data-next-page]");
    if (link) this.#endObserver?.observe(link);
  }

  async #loadMore() {
    const link = /** @type {HTMLAnchorElement | null} */ (this.querySelector("[data-next-page]"));
    if (!link || this.#loading) return;
    this.#loading = true;
    link.setAttribute("aria-busy", "true");
    try {
      const page = await fetchTable(link.href);
      const rows = page?.querySelectorAll("tbody > tr") ?? [];
      const body = this.querySelector("tbody");
      for (const row of rows) if (!document.getElementById(row.id)) body?.append(row);
      this.#endObserver?.unobserve(link);
      const next = page?.querySelector("[data-next-page]");
      if (next) link.replaceWith(next);
      else link.remove();
    } catch {
      link.removeAttribute("aria-busy");
      this.#endObserver?.unobserve(link);
    } finally {
      this.#loading = false;
      this.#observeEnd();
    }
  }

  #handleClick = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest("[data-clear-selection]")) {
      for (const box of this.#boxes) box.checked = false;
      this.#updateSelection();
    }
    if (target.closest("[data-copy-ids]")) this.#copyIds();
    openRow(event);
  };

  #handleChange = (/** @type {Event} */ event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-select-all]"))
      for (const other of this.#boxes) other.checked = box.checked;
    else if (box.name !== "run") return;
    this.#updateSelection();
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    if (!isShortcut(event) || event.key.toLowerCase() !== "x") return;
    const row =
      document.activeElement?.closest("tr[data-row]") ??
      this.querySelector('tr[aria-selected="true"]');
    const boxes = this.#boxes;
    const box = /** @type {HTMLInputElement | null | undefined} */ (
      row?.querySelector('input[name="run"]')
    );
    if (!box) return;
    const index = boxes.indexOf(box);
    box.checked = !box.checked;
    if (event.shiftKey && this.#lastSelected >= 0) {
      for (
        let n = Math.min(index, this.#lastSelected);
        n <= Math.max(index, this.#lastSelected);
        n++
      ) {
        const between = boxes[n];
        if (between) between.checked = box.checked;
      }
    }
    this.#lastSelected = index;
    this.#updateSelection();
  };

  async #copyIds() {
    const ids = this.#boxes.filter((box) => box.checked).map((box) => box.value);
    await navigator.clipboard.writeText(ids.join("\n"));
    showToast(`${ids.length} ID${ids.length === 1 ? "" : "s"} copied`);
  }

  #updateSelection() {
    const boxes = this.#boxes;
    const count = boxes.filter((box) => box.checked).length;
    for (const box of boxes) box.closest("tr")?.classList.toggle("is-selected", box.checked);
    this.querySelector("[data-selection-tools]")?.toggleAttribute("hidden", !count);
    this.querySelector("[data-idle]")?.toggleAttribute("hidden", count > 0);
    const counter = this.querySelector("[data-count]");
    if (counter) counter.textContent = String(count);
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (
      this.querySelectorAll("[data-requires-count]")
    )) {
      button.disabled = count !== Number(button.dataset.requiresCount);
    }
    const all = /** @type {HTMLInputElement | null} */ (this.querySelector("[data-select-all]"));
    if (all) {
      all.checked = count > 0 && count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
    }
  }
}

/** Reload the charts and the counts of the list. */
function announceNewRows() {
  for (const id of ["strip", "facets"])
    document.getElementById(id)?.dispatchEvent(new CustomEvent("rows-added"));
}

/**
 * Fetch the page fragment that contains the table.
 *
 * @param {string} url
 */
async function fetchTable(url) {
  const response = await fetch(url, { headers: { "HX-Request": "true", Accept: "text/html" } });
  if (!response.ok || response.headers.has("HX-Redirect")) return null;
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

/**
 * @param {number} count
 * @param {number} pageSize
 */
function createNewRunsLink(count, pageSize) {
  const link = document.createElement("a");
  link.className = "button button-small new-runs-link";
  link.href = location.href;
  link.textContent = `${count}${count >= pageSize ? "+" : ""} new`;
  return link;
}

customElements.define("run-table", RunTable);
