/** <markdown-view class="prose">text</markdown-view>: renders model output as Markdown, without HTML, images or unsafe links. */
import { DOMPurify, MarkdownIt } from "../../vendor/markdown.js";

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true }).disable("image");

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
