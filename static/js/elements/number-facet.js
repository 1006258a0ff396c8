/**
 * <number-facet field="latency" bounds='["1ms", "10ms", "1s"]' labels='["1 ms", "10 ms", "1.00 s"]'
 *   href="/…?query=…"><svg>…</svg>
 *   <div hidden><input type="range" data-handle="low"><input type="range" data-handle="high"></div>
 *   <p><span data-low></span><span data-high></span></p></number-facet>: two handles over a histogram.
 *
 * A handle stands on one of the bounds. Its release opens `href`, the list without a range of the field, with the range
 * as a clause of the query, such as `latency:10ms..1s`.
 */
class NumberFacet extends HTMLElement {
  connectedCallback() {
    const handles = /** @type {HTMLElement} */ (this.querySelector("div"));
    handles.hidden = false;
    handles.addEventListener("input", this.#handleInput);
    handles.addEventListener("change", this.#handleChange);
  }

  /** @param {"bounds" | "labels"} name */
  #list(name) {
    return /** @type {string[]} */ (JSON.parse(this.getAttribute(name) ?? "[]"));
  }

  /** @param {"low" | "high"} name */
  #handle(name) {
    return /** @type {HTMLInputElement} */ (this.querySelector(`[data-handle=${name}]`));
  }

  #handleInput = (/** @type {Event} */ event) => {
    const low = this.#handle("low");
    const high = this.#handle("high");
    // The handles keep one bar between them.
    if (Number(low.value) >= Number(high.value)) {
      if (event.target === low) low.value = String(Math.max(0, Number(high.value) - 1));
      else high.value = String(Number(low.value) + 1);
    }
    for (const name of /** @type {const} */ (["low", "high"])) {
      const handle = this.#handle(name);
      const text = this.#list("labels")[Number(handle.value)] ?? "";
      handle.setAttribute("aria-valuetext", text);
      /** @type {HTMLElement} */ (this.querySelector(`[data-${name}]`)).textContent = text;
    }
    this.querySelectorAll("rect").forEach((bar, index) => {
      const isSelected = index >= Number(low.value) && index < Number(high.value);
      bar.classList.toggle("is-selected", isSelected);
    });
  };

  #handleChange = () => {
    const bounds = this.#list("bounds");
    const low = Number(this.#handle("low").value);
    const high = Number(this.#handle("high").value);
    const url = new URL(this.getAttribute("href") ?? "", location.href);
    const from = low > 0 ? bounds[low] : "";
    const to = high < bounds.length - 1 ? bounds[high] : "";
    const clause = from || to ? `${this.getAttribute("field")}:${from}..${to}` : "";
    const query = [url.searchParams.get("query"), clause].filter(Boolean).join(" ");
    if (query) url.searchParams.set("query", query);
    location.assign(url);
  };
}
customElements.define("number-facet", NumberFacet);
