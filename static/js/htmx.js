/** Loads htmx with the `morph` swap style: Idiomorph merges the new fragment into the old one and keeps focus and scroll position. */
import { htmx, Idiomorph } from "../vendor/htmx.js";

htmx.defineExtension("morph", {
  isInlineSwap: (/** @type {string} */ style) => style === "morph",
  handleSwap(style, target, fragment) {
    if (style !== "morph" || !(target instanceof Element)) return false;
    const content = fragment instanceof DocumentFragment ? fragment.firstElementChild : fragment;
    if (content instanceof Element)
      Idiomorph.morph(target, content.outerHTML, { morphStyle: "outerHTML" });
    return [];
  },
});
if (document.readyState !== "loading") htmx.process(document.body);
