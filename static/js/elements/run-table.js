/**
 * <run-table data-rows="/…?show=llm" [data-live]> around the list of runs: rows that are still running are looked at again,
 * new ones are announced, or come by themselves while Live is on and the pointer is elsewhere; the link to older runs
 * is followed when it comes into view; rows are selected with X, and what can be done with them appears.
 *
 * Tells the page `row-chosen` when a row is opened by a plain click, which <peek-panel> takes.
 */
import { isPlain } from "../lib/keyboard.js";
import { keep } from "../lib/lists.js";
import { toast } from "../lib/toast.js";

const EVERY = 4000;

class RunTable extends HTMLElement {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;
  /** @type {IntersectionObserver | undefined} */
  #sight;
  #loading = false;
  #last = -1;

  connectedCallback() {
    this.addEventListener("click", this.#click);
    this.addEventListener("change", this.#change);
    document.addEventListener("keydown", this.#key);
    addEventListener("pagehide", this.#leave);
    this.#sight = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this.#more(), { rootMargin: "400px" });
    this.#watchEnd();
    if (this.hasAttribute("data-live") || !this.#isSettled) {
      this.#timer = setInterval(this.#look, EVERY);
      document.addEventListener("visibilitychange", this.#look);
    }
    const button = this.#liveButton;
    if (button && this.hasAttribute("data-live")) {
      button.hidden = false;
      this.#show(sessionStorage.getItem("live") === "on");
      button.addEventListener("click", () => {
        this.#show(!this.#isLive);
        sessionStorage.setItem("live", this.#isLive ? "on" : "");
        this.#look();
      });
    }
    this.#tell();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    this.#sight?.disconnect();
    removeEventListener("pagehide", this.#leave);
    document.removeEventListener("keydown", this.#key);
    document.removeEventListener("visibilitychange", this.#look);
  }

  #leave = () => keep(this);

  get #liveButton() {
    return /** @type {HTMLButtonElement | null} */ (this.querySelector("[data-live-button]"));
  }

  get #isLive() {
    return this.#liveButton?.getAttribute("aria-pressed") === "true";
  }

  get #isSettled() {
    return this.querySelector("table")?.dataset.settled !== "false";
  }

  get #boxes() {
    return /** @type {HTMLInputElement[]} */ ([...this.querySelectorAll('input[name="run"]')]);
  }

  /** @param {boolean} live */
  #show(live) {
    const button = this.#liveButton;
    if (!button) return;
    button.setAttribute("aria-pressed", String(live));
    const word = button.querySelector("span");
    if (word) word.textContent = live ? "Live" : "Paused";
    button.title = live ? "New runs appear automatically. Click to pause." : "Click to show new runs automatically.";
  }

  /** Looks at the first page again: what changed is put in place, what is new is told or put on top. */
  #look = async () => {
    if (document.visibilityState !== "visible" || this.#loading) return;
    if (!this.hasAttribute("data-live") && this.#isSettled) return;
    try {
      const page = await fragment(this.dataset.rows ?? "");
      const fresh = page && /** @type {HTMLTableElement | null} */ (page.querySelector("table"));
      if (fresh) this.#merge(fresh);
    } catch {
      // The next look may succeed; the table is right as of its own time.
    }
  };

  /** @param {HTMLTableElement} fresh */
  #merge(fresh) {
    const body = this.querySelector("tbody");
    const come = [];
    for (const row of fresh.querySelectorAll("tbody > tr")) {
      const known = document.getElementById(row.id);
      if (!known) come.push(row);
      else if (known.dataset.status !== /** @type {HTMLElement} */ (row).dataset.status) this.#renew(known, row);
    }
    const news = this.querySelector("[data-new]");
    const isFree = this.#isLive && scrollY < 80 && !this.querySelector(".table-frame:hover, tbody :focus");
    if (body && isFree) {
      for (const row of come.reverse()) {
        row.classList.add("is-new");
        body.prepend(row);
      }
      news?.replaceChildren();
    } else if (news && this.hasAttribute("data-live")) {
      news.replaceChildren(...(come.length ? [announce(come.length, fresh.rows.length - 1)] : []));
    } else if (!body && come.length) location.reload();
  }

  /**
   * @param {HTMLElement} known
   * @param {Element} row
   */
  #renew(known, row) {
    const box = /** @type {HTMLInputElement | null} */ (known.querySelector('input[name="run"]'));
    const mine = /** @type {HTMLInputElement | null} */ (row.querySelector('input[name="run"]'));
    if (box && mine) mine.checked = box.checked;
    if (known.contains(document.activeElement)) return;
    known.replaceWith(row);
  }

  #watchEnd() {
    const link = this.querySelector("[data-more]");
    if (link) this.#sight?.observe(link);
  }

  async #more() {
    const link = /** @type {HTMLAnchorElement | null} */ (this.querySelector("[data-more]"));
    if (!link || this.#loading) return;
    this.#loading = true;
    link.setAttribute("aria-busy", "true");
    try {
      const page = await fragment(link.href);
      const rows = page?.querySelectorAll("tbody > tr") ?? [];
      const body = this.querySelector("tbody");
      for (const row of rows) if (!document.getElementById(row.id)) body?.append(row);
      this.#sight?.unobserve(link);
      const next = page?.querySelector("[data-more]");
      if (next) link.replaceWith(next);
      else link.remove();
    } catch {
      link.removeAttribute("aria-busy");
      this.#sight?.unobserve(link);
    } finally {
      this.#loading = false;
      this.#watchEnd();
    }
  }

  #click = (/** @type {MouseEvent} */ event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest("[data-none]")) for (const box of this.#boxes) box.checked = false;
    if (target.closest("[data-copy]")) this.#copy();
    if (target.closest("[data-none], [data-all]")) this.#tell();
    const link = target.closest(".row-link");
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const chosen = new CustomEvent("row-chosen", { detail: { link }, bubbles: true, cancelable: true });
    // A key press on the link comes as a click without a place: it opens the page.
    if (event.detail && !link.dispatchEvent(chosen)) event.preventDefault();
  };

  #change = (/** @type {Event} */ event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-all]")) for (const one of this.#boxes) one.checked = box.checked;
    else if (box.name !== "run") return;
    this.#tell();
  };

  #key = (/** @type {KeyboardEvent} */ event) => {
    if (!isPlain(event) || event.key.toLowerCase() !== "x") return;
    const row = document.activeElement?.closest("tr[data-row]") ?? this.querySelector('tr[aria-selected="true"]');
    const boxes = this.#boxes;
    const box = /** @type {HTMLInputElement | null | undefined} */ (row?.querySelector('input[name="run"]'));
    if (!box) return;
    const at = boxes.indexOf(box);
    box.checked = !box.checked;
    if (event.shiftKey && this.#last >= 0) {
      for (let n = Math.min(at, this.#last); n <= Math.max(at, this.#last); n++) {
        const between = boxes[n];
        if (between) between.checked = box.checked;
      }
    }
    this.#last = at;
    this.#tell();
  };

  async #copy() {
    const ids = this.#boxes.filter((box) => box.checked).map((box) => box.value);
    await navigator.clipboard.writeText(ids.join("\n"));
    toast(`${ids.length} ID${ids.length === 1 ? "" : "s"} copied`);
  }

  #tell() {
    const boxes = this.#boxes;
    const count = boxes.filter((box) => box.checked).length;
    for (const box of boxes) box.closest("tr")?.classList.toggle("is-chosen", box.checked);
    this.querySelector("[data-chosen]")?.toggleAttribute("hidden", !count);
    this.querySelector("[data-idle]")?.toggleAttribute("hidden", count > 0);
    const number = this.querySelector("[data-count]");
    if (number) number.textContent = String(count);
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (this.querySelectorAll("[data-needs]"))) {
      button.disabled = count !== Number(button.dataset.needs);
    }
    const all = /** @type {HTMLInputElement | null} */ (this.querySelector("[data-all]"));
    if (all) {
      all.checked = count > 0 && count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
    }
  }
}

/**
 * The table alone, as the server writes it into the page.
 *
 * @param {string} address
 */
async function fragment(address) {
  const answer = await fetch(address, { headers: { "HX-Request": "true", Accept: "text/html" } });
  if (!answer.ok || answer.headers.has("HX-Redirect")) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

/**
 * @param {number} count
 * @param {number} most
 */
function announce(count, most) {
  const link = document.createElement("a");
  link.className = "button button-small new-traces";
  link.href = location.href;
  link.textContent = `${count}${count >= most ? "+" : ""} new`;
  return link;
}

customElements.define("run-table", RunTable);
