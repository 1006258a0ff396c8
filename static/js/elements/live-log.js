/**
 * <live-log class="log" src="/…/live" data-after="17" data-live>: a log that the server wrote into the page and that
 * goes on by WebSocket. After a break it asks for what follows the last line it has, so none is lost or doubled.
 *
 * Inside: [data-follow] [data-wrap-toggle] [data-times-toggle] [data-full] buttons, input[type=search], .log-state,
 * .log-body > .log-lines. Tells the page `revision-status` when the status changed.
 */
import { redraw } from "../lib/icons.js";

const MOST_RANGES = 2000;
const LONGEST_PAUSE = 10_000;

/** @typedef {[id: number, at: string, level: string, text: string]} Line */

class LiveLog extends HTMLElement {
  /** @type {WebSocket | undefined} */
  #socket;
  #pause = 500;
  #follows = true;
  #gone = false;
  /** @type {HTMLElement[]} */
  #found = [];
  #foundAt = -1;

  connectedCallback() {
    this.#gone = false;
    this.#button("[data-follow]", () => this.#setFollow(!this.#follows));
    this.#button("[data-wrap-toggle]", (button) => button.setAttribute("aria-pressed", String(this.toggleAttribute("data-wrap"))));
    this.#button("[data-times-toggle]", (button) => {
      const off = this.dataset.times !== "off";
      this.dataset.times = off ? "off" : "on";
      button.setAttribute("aria-pressed", String(!off));
    });
    this.#button("[data-full]", () => (document.fullscreenElement ? document.exitFullscreen() : this.requestFullscreen()));
    this.addEventListener("fullscreenchange", () =>
      redraw(this.querySelector("[data-full] .icon"), document.fullscreenElement ? "minimize-2" : "maximize-2"),
    );
    this.#body.addEventListener("scroll", this.#scrolled, { passive: true });
    this.#search?.addEventListener("input", () => this.#find());
    this.#search?.addEventListener("keydown", (event) => this.#findKey(event));
    if (this.hasAttribute("data-live")) {
      this.#toEnd();
      this.#connect();
    } else {
      this.#say("ended", "Ended");
      this.#setFollow(false);
      const errors = this.#lines.querySelectorAll('[data-level="ERROR"], [data-level="CRITICAL"]');
      const last = errors[errors.length - 1];
      if (last instanceof HTMLElement) this.#body.scrollTop = last.offsetTop - this.#body.clientHeight / 2;
    }
  }

  disconnectedCallback() {
    this.#gone = true;
    this.#socket?.close();
  }

  get #body() {
    return /** @type {HTMLElement} */ (this.querySelector(".log-body"));
  }

  get #lines() {
    return /** @type {HTMLElement} */ (this.querySelector(".log-lines"));
  }

  get #search() {
    return /** @type {HTMLInputElement | null} */ (this.querySelector("input[type=search]"));
  }

  /**
   * @param {string} selector
   * @param {(button: HTMLElement) => void} press
   */
  #button(selector, press) {
    const button = /** @type {HTMLElement | null} */ (this.querySelector(selector));
    button?.addEventListener("click", () => press(button));
  }

  #connect() {
    const address = new URL(this.getAttribute("src") ?? "", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("after", this.dataset.after ?? "0");
    const socket = (this.#socket = new WebSocket(address));
    socket.onopen = () => {
      this.#pause = 500;
      this.#say("live", "Live");
    };
    socket.onmessage = (event) => this.#take(JSON.parse(event.data));
    socket.onclose = (event) => {
      // 1000: the build is over. 4401, 4403, 4404: it may not be read any more, or is not there.
      if (this.#gone || event.code === 1000 || event.code >= 4400) {
        this.#say("ended", "Ended");
        return;
      }
      this.#say("waiting", "Reconnecting…");
      setTimeout(() => !this.#gone && this.#connect(), this.#pause);
      this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    };
  }

  /** @param {{ type: "lines", lines: Line[] } | { type: "status", status: string }} message */
  #take(message) {
    if (message.type === "lines") this.#append(message.lines);
    else document.body.dispatchEvent(new CustomEvent("revision-status", { detail: message }));
  }

  /** @param {Line[]} lines */
  #append(lines) {
    const fresh = document.createDocumentFragment();
    for (const [id, at, level, text] of lines) {
      const line = document.createElement("li");
      line.className = "log-line";
      line.dataset.level = level;
      const time = document.createElement("time");
      time.dateTime = at;
      time.textContent = at.slice(11, 23);
      const words = document.createElement("span");
      words.textContent = text;
      line.append(time, words);
      fresh.append(line);
      this.dataset.after = String(id);
    }
    this.querySelector(".log-none")?.remove();
    this.#lines.append(fresh);
    if (this.#search?.value) this.#find(false);
    if (this.#follows) this.#toEnd();
  }

  /**
   * @param {string} state
   * @param {string} words
   */
  #say(state, words) {
    this.dataset.state = state;
    const place = this.querySelector(".log-state");
    if (place) place.textContent = words;
  }

  #toEnd() {
    this.#body.scrollTop = this.#body.scrollHeight;
  }

  #scrolled = () => {
    const body = this.#body;
    const atEnd = body.scrollHeight - body.scrollTop - body.clientHeight < 24;
    if (atEnd !== this.#follows && this.dataset.state === "live") this.#setFollow(atEnd, false);
  };

  /**
   * @param {boolean} follows
   * @param {boolean} [jump]
   */
  #setFollow(follows, jump = true) {
    this.#follows = follows;
    this.querySelector("[data-follow]")?.setAttribute("aria-pressed", String(follows));
    if (follows && jump) this.#toEnd();
  }

  #find(jump = true) {
    const text = this.#search?.value.toLowerCase() ?? "";
    for (const line of this.#found) line.classList.remove("is-found-now");
    this.#found = [];
    /** @type {Range[]} */
    const ranges = [];
    for (const line of /** @type {Iterable<HTMLElement>} */ (text ? this.#lines.children : [])) {
      const node = line.querySelector("span")?.firstChild;
      const at = node?.textContent?.toLowerCase().indexOf(text) ?? -1;
      if (!node || at < 0) continue;
      this.#found.push(line);
      if (ranges.length < MOST_RANGES) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + text.length);
        ranges.push(range);
      }
    }
    if (CSS.highlights) CSS.highlights.set("log-find", new Highlight(...ranges));
    this.#foundAt = -1;
    if (jump && this.#found.length) this.#show(0);
    this.#count();
  }

  /** @param {KeyboardEvent} event */
  #findKey(event) {
    if (event.key === "Escape" && this.#search) {
      this.#search.value = "";
      this.#find();
    } else if (event.key === "Enter" && this.#found.length) {
      event.preventDefault();
      const step = event.shiftKey ? -1 : 1;
      this.#show((this.#foundAt + step + this.#found.length) % this.#found.length);
      this.#count();
    }
  }

  /** @param {number} index */
  #show(index) {
    this.#found[this.#foundAt]?.classList.remove("is-found-now");
    this.#foundAt = index;
    const line = this.#found[index];
    line?.classList.add("is-found-now");
    line?.scrollIntoView({ block: "center" });
  }

  #count() {
    const place = this.querySelector("[data-found]");
    if (!place) return;
    const found = this.#found.length;
    place.textContent = this.#search?.value ? (found ? `${Math.max(0, this.#foundAt) + 1} of ${found}` : "No matches") : "";
  }
}
customElements.define("live-log", LiveLog);
