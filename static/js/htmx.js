/**
 * Loads htmx with the `morph` swap style: Idiomorph merges the new fragment into the old one and keeps focus and scroll
 * position. A request that fails shows an error.
 */
import { htmx, Idiomorph } from "../vendor/htmx.js";
import { showToast } from "./lib/toast.js";

htmx.defineExtension("morph", {
  isInlineSwap: (/** @type {string} */ style) => style === "morph",
  handleSwap(style, target, fragment) {
    if (style !== "morph" || !(target instanceof Element)) return false;
    const content = fragment instanceof DocumentFragment ? fragment.firstElementChild : fragment;
    if (content instanceof Element)
      Idiomorph.morph(target, content.outerHTML, {
        morphStyle: "outerHTML",
        // What the reader opened or folded stays so.
        callbacks: {
          beforeAttributeUpdated: (name, node) =>
            !(name === "open" && node instanceof HTMLDetailsElement),
        },
      });
    return [];
  },
});
if (document.readyState !== "loading") htmx.process(document.body);
for (const name of ["htmx:responseError", "htmx:sendError"])
  document.addEventListener(name, () => showToast("The request failed. Try again.", "error"));

/** @param {HTMLElement} root inserted without htmx */
export function processHtmx(root) {
  htmx.process(root);
}
