/**
 * <tab-set><div role="tablist"><button role="tab" aria-controls="a">…</div><div role="tabpanel" id="a">…</tab-set>:
 * shows one panel; arrows move. The choice is kept by `name` for the next run that offers it.
 */
class TabSet extends HTMLElement {
  connectedCallback() {
    const list = this.querySelector('[role="tablist"]');
    if (list instanceof HTMLElement) list.hidden = false;
    const kept = sessionStorage.getItem(`tab:${this.getAttribute("name")}`);
    const first = this.#tabs.find((tab) => tab.dataset.tab === kept) ?? this.#tabs.find((tab) => tab.ariaSelected === "true");
    this.#show(first ?? this.#tabs[0]);
    this.addEventListener("click", this.#click);
    this.addEventListener("keydown", this.#key);
  }

  get #tabs() {
    // A panel may hold another set: the first list is this one's own.
    return /** @type {HTMLElement[]} */ ([...(this.querySelector('[role="tablist"]')?.querySelectorAll('[role="tab"]') ?? [])]);
  }

  #click = (/** @type {Event} */ event) => {
    const tab = /** @type {Element} */ (event.target).closest('[role="tab"]');
    if (!(tab instanceof HTMLElement) || !this.#tabs.includes(tab)) return;
    this.#show(tab);
    sessionStorage.setItem(`tab:${this.getAttribute("name")}`, tab.dataset.tab ?? "");
  };

  #key = (/** @type {KeyboardEvent} */ event) => {
    const tabs = this.#tabs;
    const at = tabs.indexOf(/** @type {HTMLElement} */ (event.target));
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at < 0 || !step) return;
    event.preventDefault();
    const tab = tabs[(at + step + tabs.length) % tabs.length];
    tab?.focus();
    tab?.click();
  };

  /** @param {HTMLElement | undefined} chosen */
  #show(chosen) {
    for (const tab of this.#tabs) {
      tab.ariaSelected = String(tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      if (panel) panel.hidden = tab !== chosen;
    }
  }
}
customElements.define("tab-set", TabSet);
