/**
 * <template-field format="f-string"><textarea>…</textarea></template-field>: grows with its text, and marks the variables of the
 * template behind it.
 */
const MARKS = /** @type {Record<string, RegExp>} */ ({
  "f-string": /(?<!\{)\{[A-Za-z_]\w*(?:[!:][^{}]*)?\}(?!\})/g,
  mustache: /\{\{\{?[^{}]*\}?\}\}/g,
});

export class TemplateField extends HTMLElement {
  static observedAttributes = ["format"];

  connectedCallback() {
    if (!this.querySelector(".template-marks")) {
      const marks = document.createElement("div");
      marks.className = "template-marks";
      marks.ariaHidden = "true";
      this.prepend(marks);
      this.addEventListener("input", () => this.refresh());
    }
    this.refresh();
  }

  attributeChangedCallback() {
    this.refresh();
  }

  /** Draw the text again; its owner calls this when it sets the value. */
  refresh() {
    const marks = this.querySelector(".template-marks");
    const text = this.querySelector("textarea")?.value ?? "";
    if (!marks) return;
    const pattern = MARKS[this.getAttribute("format") ?? ""];
    marks.replaceChildren();
    let end = 0;
    for (const match of pattern ? text.matchAll(pattern) : []) {
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      marks.append(text.slice(end, match.index), mark);
      end = match.index + match[0].length;
    }
    // The last line has its height only with a character in it.
    marks.append(`${text.slice(end)}\u200b`);
  }
}
customElements.define("template-field", TemplateField);
