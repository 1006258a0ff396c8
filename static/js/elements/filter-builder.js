/**
 * <filter-builder values="/…/values">: the fields of the form that adds a condition to the filter. It offers the
 * operators of the selected field, shows the key of fields that have one, and suggests keys and values.
 */
class FilterBuilder extends HTMLElement {
  /** @type {Map<string, AbortController>} The request under way of each list. */
  #requests = new Map();

  connectedCallback() {
    this.#select("field").addEventListener("change", () => this.#showField());
    this.#select("operator").addEventListener("change", () => this.#showValue());
    this.#key.addEventListener("change", () => this.#suggestValues());
    this.#showField();
    // The values are loaded once the form is used: each list is a query.
    this.addEventListener("focusin", () => this.#suggest(), { once: true });
  }

  /** @param {string} name */
  #select(name) {
    return /** @type {HTMLSelectElement} */ (this.querySelector(`select[name="${name}"]`));
  }

  get #option() {
    const field = this.#select("field");
    return /** @type {HTMLOptionElement} */ (field.options[field.selectedIndex]);
  }

  #showField() {
    const operators = (this.#option.dataset.operators ?? "").split(" ");
    const select = this.#select("operator");
    for (const option of select.options) {
      option.hidden = option.disabled = !operators.includes(option.value);
    }
    select.value = operators[0] ?? "";
    for (const part of /** @type {NodeListOf<HTMLElement>} */ (
      this.querySelectorAll("[data-key-part]")
    )) {
      part.hidden = !this.#option.dataset.key;
    }
    this.#value.placeholder = this.#option.dataset.hint ?? "";
    this.#value.value = "";
    this.#showValue();
    if (this.contains(document.activeElement)) this.#suggest();
  }

  get #value() {
    return /** @type {HTMLInputElement} */ (this.querySelector('input[name="value"]'));
  }

  get #key() {
    return /** @type {HTMLInputElement} */ (this.querySelector('input[name="key"]'));
  }

  #showValue() {
    this.#value.disabled = ["is_null", "is_not_null"].includes(this.#select("operator").value);
  }

  async #suggest() {
    const { key } = this.#option.dataset;
    await this.#suggestValues();
    if (key) await this.#fill("builder-keys", key);
  }

  #suggestValues() {
    return this.#fill("builder-values", this.#select("field").value);
  }

  /**
   * @param {string} id
   * @param {string} field
   */
  async #fill(id, field) {
    const url = new URL(this.getAttribute("values") ?? "", location.href);
    url.searchParams.set("field", field);
    if (this.#option.dataset.key && field !== this.#option.dataset.key)
      url.searchParams.set("key", this.#key.value);
    // An earlier request that is answered late must not replace the values of the present field and key.
    this.#requests.get(id)?.abort();
    const request = new AbortController();
    this.#requests.set(id, request);
    const response = await fetch(url, { signal: request.signal }).catch(() => null);
    const body = response?.ok ? await response.json().catch(() => null) : null;
    if (!body || request.signal.aborted || this.#option.value === "") return;
    document.getElementById(id)?.replaceChildren(
      ...body.values.map((/** @type {string} */ value) => {
        const option = document.createElement("option");
        option.value = value;
        return option;
      }),
    );
  }
}

customElements.define("filter-builder", FilterBuilder);
