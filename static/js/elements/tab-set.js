/**
 * <tab-set><div role="tablist"><button role="tab" aria-controls="a">…</div><div role="tabpanel" id="a">…</tab-set>:
 * shows one panel; arrow keys move. The selected tab is stored by `name` for the next page with the same tabs; an address
 * that ends with `#` and a tab's id selects that tab.
 */
class TabSet extends HTMLElement {
  connectedCallback() {
    const list = this.querySelector('[role="tablist"]');
    if (list instanceof HTMLElement) list.hidden = false;
    const linked = this.#tabs.find((tab) => tab.id !== "" && location.hash === `#${tab.id}`);
    const stored = linked ?? this.#findStoredTab();
    const first = stored ?? this.#tabs.find((tab) => tab.ariaSelected === "true");
    this.#show(first ?? this.#tabs[0]);
    this.addEventListener("click", this.#handleClick);
    this.addEventListener("keydown", this.#handleKeydown);
  }

  get #tabs() {
    // A panel may contain another tab set; the first tab list belongs to this one.
    return /** @type {HTMLElement[]} */ ([
      ...(this.querySelector('[role="tablist"]')?.querySelectorAll('[role="tab"]') ?? []),
    ]);
  }

  get #storageKey() {
    return `tab:${this.getAttribute("name")}`;
  }

  get #scope() {
    return this.getAttribute("scope") ?? "";
  }

  #findStoredTab() {
    const [name, scope] = sessionStorage.getItem(this.#storageKey)?.split(" ") ?? [];
    if (this.hasAttribute("data-pinned") || scope !== this.#scope) return undefined;
    return this.#tabs.find((tab) => tab.dataset.tab === name);
  }

  #handleClick = (/** @type {Event} */ event) => {
    const tab = /** @type {Element} */ (event.target).closest('[role="tab"]');
    if (!(tab instanceof HTMLElement) || !this.#tabs.includes(tab)) return;
    this.#show(tab);
    sessionStorage.setItem(this.#storageKey, `${tab.dataset.tab} ${this.#scope}`);
  };

  #handleKeydown = (/** @type {KeyboardEvent} */ event) => {
    const tabs = this.#tabs;
    const index = tabs.indexOf(/** @type {HTMLElement} */ (event.target));
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (index < 0 || !step) return;
    event.preventDefault();
    const tab = tabs[(index + step + tabs.length) % tabs.length];
    tab?.focus();
    tab?.click();
  };

  /** @param {HTMLElement | undefined} selected */
  #show(selected) {
    for (const tab of this.#tabs) {
      tab.ariaSelected = String(tab === selected);
      tab.tabIndex = tab === selected ? 0 : -1;
      const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      if (panel) panel.hidden = tab !== selected;
    }
  }
}
customElements.define("tab-set", TabSet);
