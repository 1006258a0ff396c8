/**
 * <diff-view before="…" after="…"></diff-view>: shows two texts as one, with the removed and the added words marked. The
 * texts are compared again when an attribute changes.
 */
import { compareWords } from "../lib/word-diff.js";

/** @type {Record<string, string>} */
const ELEMENTS = { removed: "del", added: "ins" };

class DiffView extends HTMLElement {
  static observedAttributes = ["before", "after"];

  connectedCallback() {
    this.#render();
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#render();
  }

  #render() {
    const before = this.getAttribute("before") ?? "";
    const after = this.getAttribute("after") ?? "";
    if (before === after) {
      this.replaceChildren(createNote("No difference in text."));
      return;
    }
    const parts = compareWords(before, after);
    if (!parts) {
      this.replaceChildren(createNote("The texts are too long to compare."));
      return;
    }
    const text = document.createElement("p");
    text.className = "word-diff";
    for (const { kind, text: words } of parts) {
      const name = ELEMENTS[kind];
      if (!name) {
        text.append(words);
        continue;
      }
      const change = document.createElement(name);
      change.textContent = words;
      text.append(change);
    }
    this.replaceChildren(text);
  }
}

/** @param {string} text */
function createNote(text) {
  const note = document.createElement("p");
  note.className = "payload-empty";
  note.textContent = text;
  return note;
}

customElements.define("diff-view", DiffView);
