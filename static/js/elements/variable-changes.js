/**
 * <variable-changes><form>… [data-variable] inputs, "removed" boxes, "added" lines, [data-summary]</form></variable-changes>:
 * shows what saving the environment would change. The server computes the changes itself.
 */
class VariableChanges extends HTMLElement {
  connectedCallback() {
    this.addEventListener("input", this);
    this.summarize();
  }

  handleEvent() {
    this.summarize();
  }

  summarize() {
    const summary = this.querySelector("[data-summary]");
    const added = this.querySelector("textarea[name=added]");
    if (!summary || !(added instanceof HTMLTextAreaElement)) return;
    /** @type {NodeListOf<HTMLInputElement>} */
    const inputs = this.querySelectorAll("[data-variable]");
    /** @type {NodeListOf<HTMLInputElement>} */
    const boxes = this.querySelectorAll("input[name=removed]:checked");
    const names = new Set([...inputs].map((input) => input.dataset.variable ?? ""));
    const lines = new Set(addedNames(added.value));
    const changed = new Set([
      ...[...inputs].filter(({ value }) => value).map((input) => input.dataset.variable ?? ""),
      ...[...lines].filter((name) => names.has(name)),
    ]);
    const removed = [...boxes].map(({ value }) => value).filter((name) => !changed.has(name));
    const parts = [
      describe(
        "Adds",
        [...lines].filter((name) => !names.has(name)),
      ),
      describe("Changes", [...changed]),
      describe("Removes", removed),
    ].filter(Boolean);
    const unchanged = names.size - changed.size - removed.length;
    summary.textContent = parts.length
      ? `${parts.join(" ")} ${unchanged} unchanged.`
      : "No changes yet.";
  }
}

/** Return the names of NAME=value lines. @param {string} text */
function addedNames(text) {
  return text
    .split("\n")
    .map((line) => line.trim().replace(/^export\s+/, ""))
    .filter((line) => line && !line.startsWith("#") && line.includes("="))
    .map((line) => line.slice(0, line.indexOf("=")).trim());
}

/** @param {string} verb @param {string[]} names */
function describe(verb, names) {
  return names.length ? `${verb} ${names.sort().join(", ")}.` : "";
}

customElements.define("variable-changes", VariableChanges);
