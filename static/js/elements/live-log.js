/**
 * <live-log class="log" src="/…/live" data-after="17" data-live>: a log that the server rendered into the page and that
 * continues over a WebSocket. After a reconnect it requests the lines after the last one it has, so no line is lost or repeated.
 *
 * Inside: [data-follow] [data-wrap-toggle] [data-timestamps-toggle] [data-fullscreen] buttons, input[type=search], .log-state,
 * .log-body > .log-lines. Dispatches `revision-status` when the status changes.
 */
import { setIcon } from "../lib/icons.js";
import { formatTimeOfDay } from "../lib/time-zone.js";

const MAX_HIGHLIGHTS = 2000;
const MAX_RECONNECT_DELAY_MS = 10_000;

/** @typedef {[id: number, at: string, level: string, text: string]} Line */

class LiveLog extends HTMLElement {
  /** @type {WebSocket | undefined} */
  #socket;
  #reconnectDelay = 500;
  #isFollowing = true;
  #isDisconnected = false;
  /** @type {HTMLElement[]} */
  #matches = [];
  #matchIndex = -1;

  connectedCallback() {
    this.#isDisconnected = false;
    this.#bindButton("[data-follow]", () => this.#setFollow(!this.#isFollowing));
    this.#bindButton("[data-wrap-toggle]", (button) =>
      button.setAttribute("aria-pressed", String(this.toggleAttribute("data-wrap"))),
    );
    this.#bindButton("[data-timestamps-toggle]", (button) => {
      const off = this.dataset.times !== "off";
      this.dataset.times = off ? "off" : "on";
      button.setAttribute("aria-pressed", String(!off));
    });
    this.#bindButton("[data-fullscreen]", () =>
      document.fullscreenElement ? document.exitFullscreen() : this.requestFullscreen(),
    );
    this.addEventListener("fullscreenchange", () =>
      setIcon(
        this.querySelector("[data-fullscreen] .icon"),
        document.fullscreenElement ? "minimize-2" : "maximize-2",
      ),
    );
    this.#body.addEventListener("scroll", this.#handleScroll, { passive: true });
    this.#search?.addEventListener("input", () => this.#find());
    this.#search?.addEventListener("keydown", (event) => this.#handleSearchKey(event));
    if (this.hasAttribute("data-live")) {
      this.#scrollToEnd();
      this.#connect();
    } else {
      this.#setState("ended", "Ended");
      this.#setFollow(false);
      const errors = this.#lines.querySelectorAll('[data-level="ERROR"], [data-level="CRITICAL"]');
      const last = errors[errors.length - 1];
      if (last instanceof HTMLElement)
        this.#body.scrollTop = last.offsetTop - this.#body.clientHeight / 2;
    }
  }

  disconnectedCallback() {
    this.#isDisconnected = true;
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
   * @param {(button: HTMLElement) => void} onPress
   */
  #bindButton(selector, onPress) {
    const button = /** @type {HTMLElement | null} */ (this.querySelector(selector));
    button?.addEventListener("click", () => onPress(button));
  }

  #connect() {
    const url = new URL(this.getAttribute("src") ?? "", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("after", this.dataset.after ?? "0");
    const socket = (this.#socket = new WebSocket(url));
    socket.onopen = () => {
      this.#reconnectDelay = 500;
      this.#setState("live", "Live");
    };
    socket.onmessage = (event) => this.#handleMessage(JSON.parse(event.data));
    socket.onclose = (event) => {
      // 1000: the build has finished. 4401, 4403, 4404: access was revoked, or the revision does not exist.
      if (this.#isDisconnected || event.code === 1000 || event.code >= 4400) {
        this.#setState("ended", "Ended");
        return;
      }
      this.#setState("waiting", "Reconnecting…");
      setTimeout(() => !this.#isDisconnected && this.#connect(), this.#reconnectDelay);
      this.#reconnectDelay = Math.min(this.#reconnectDelay * 2, MAX_RECONNECT_DELAY_MS);
    };
  }

  /** @param {{ type: "lines", lines: Line[] } | { type: "status", status: string }} message */
  #handleMessage(message) {
    if (message.type === "lines") this.#append(message.lines);
    else document.body.dispatchEvent(new CustomEvent("revision-status", { detail: message }));
  }

  /** @param {Line[]} lines */
  #append(lines) {
    const fragment = document.createDocumentFragment();
    for (const [id, at, level, text] of lines) {
      const line = document.createElement("li");
      line.className = "log-line";
      line.dataset.level = level;
      const time = document.createElement("time");
      time.dateTime = at;
      time.textContent = formatTimeOfDay(new Date(at), { exact: true });
      const message = document.createElement("span");
      message.textContent = text;
      line.append(time, message);
      fragment.append(line);
      this.dataset.after = String(id);
    }
    this.querySelector(".log-empty")?.remove();
    this.#lines.append(fragment);
    if (this.#search?.value) this.#find(false);
    if (this.#isFollowing) this.#scrollToEnd();
  }

  /**
   * @param {string} state
   * @param {string} label
   */
  #setState(state, label) {
    this.dataset.state = state;
    const status = this.querySelector(".log-state");
    if (status) status.textContent = label;
  }

  #scrollToEnd() {
    this.#body.scrollTop = this.#body.scrollHeight;
  }

  #handleScroll = () => {
    const body = this.#body;
    const atEnd = body.scrollHeight - body.scrollTop - body.clientHeight < 24;
    if (atEnd !== this.#isFollowing && this.dataset.state === "live") this.#setFollow(atEnd, false);
  };

  /**
   * @param {boolean} isFollowing
   * @param {boolean} [jump]
   */
  #setFollow(isFollowing, jump = true) {
    this.#isFollowing = isFollowing;
    this.querySelector("[data-follow]")?.setAttribute("aria-pressed", String(isFollowing));
    if (isFollowing && jump) this.#scrollToEnd();
  }

  #find(jump = true) {
    const text = this.#search?.value.toLowerCase() ?? "";
    for (const line of this.#matches) line.classList.remove("is-current-match");
    this.#matches = [];
    /** @type {Range[]} */
    const ranges = [];
    for (const line of /** @type {Iterable<HTMLElement>} */ (text ? this.#lines.children : [])) {
      const node = line.querySelector("span")?.firstChild;
      const at = node?.textContent?.toLowerCase().indexOf(text) ?? -1;
      if (!node || at < 0) continue;
      this.#matches.push(line);
      if (ranges.length < MAX_HIGHLIGHTS) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + text.length);
        ranges.push(range);
      }
    }
    if (CSS.highlights) CSS.highlights.set("log-find", new Highlight(...ranges));
    this.#matchIndex = -1;
    if (jump && this.#matches.length) this.#showMatch(0);
    this.#updateMatchCount();
  }

  /** @param {KeyboardEvent} event */
  #handleSearchKey(event) {
    if (event.key === "Escape" && this.#search) {
      this.#search.value = "";
      this.#find();
    } else if (event.key === "Enter" && this.#matches.length) {
      event.preventDefault();
      const step = event.shiftKey ? -1 : 1;
      this.#showMatch((this.#matchIndex + step + this.#matches.length) % this.#matches.length);
      this.#updateMatchCount();
    }
  }

  /** @param {number} index */
  #showMatch(index) {
    this.#matches[this.#matchIndex]?.classList.remove("is-current-match");
    this.#matchIndex = index;
    const line = this.#matches[index];
    line?.classList.add("is-current-match");
    line?.scrollIntoView({ block: "center" });
  }

  #updateMatchCount() {
    const status = this.querySelector("[data-match-count]");
    if (!status) return;
    const count = this.#matches.length;
    status.textContent = this.#search?.value
      ? count
        ? `${Math.max(0, this.#matchIndex) + 1} of ${count}`
        : "No matches"
      : "";
  }
}
customElements.define("live-log", LiveLog);
