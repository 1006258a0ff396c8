/** <markdown-view class="prose">text</markdown-view>: renders model output as Markdown, without HTML, images or unsafe links. */
import { DOMPurify, MarkdownIt } from "../../vendor/markdown.js";

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true }).disable("image");

// The alignment of a table column as an attribute, because the content security policy rejects inline styles.
for (const rule of ["th_open", "td_open"]) {
  markdown.renderer.rules[rule] = (tokens, index, options, _environment, renderer) => {
    const token = tokens[index];
    const style = String(token?.attrGet("style") ?? "");
    if (token && style) token.attrs = [["align", style.replace("text-align:", "")]];
    return renderer.renderToken(tokens, index, options);
  };
}

class MarkdownView extends HTMLElement {
  connectedCallback() {
    if (this.classList.contains("is-rendered")) return;
    const html = markdown.render(this.textContent ?? "");
    this.replaceChildren(
      DOMPurify.sanitize(html, {
        RETURN_DOM_FRAGMENT: true,
        FORBID_TAGS: ["style", "img"],
        FORBID_ATTR: ["style", "class", "id"],
      }),
    );
    for (const link of this.querySelectorAll("a")) {
      link.rel = "noopener noreferrer nofollow";
      link.target = "_blank";
    }
    this.classList.add("is-rendered");
  }
}
customElements.define("markdown-view", MarkdownView);
