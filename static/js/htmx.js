/**
 * Loads htmx with the `morph` swap style: Idiomorph merges the new fragment into the old one and keeps focus and scroll
 * position. It is loaded on pages that use the style. A request that fails shows an error.
 */
import { htmx } from "../vendor/htmx.js";
import { showToast } from "./lib/toast.js";

const MORPHED = '[hx-swap="morph"]';

/** @type {typeof import("../vendor/idiomorph.js").Idiomorph | undefined} */
let idiomorph;
/** @type {Promise<void> | undefined} */
let loading;

function loadIdiomorph() {
  loading ??= import("../vendor/idiomorph.js").then((module) => {
    idiomorph = module.Idiomorph;
  });
}

if (document.querySelector(MORPHED)) loadIdiomorph();
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target instanceof Element && event.target.matches(MORPHED)) loadIdiomorph();
});

htmx.defineExtension("morph", {
  isInlineSwap: (/** @type {string} */ style) => style === "morph",
  handleSwap(style, target, fragment) {
    if (style !== "morph" || !(target instanceof Element)) return false;
    const content = fragment instanceof DocumentFragment ? fragment.firstElementChild : fragment;
    if (!(content instanceof Element)) return [];
    if (idiomorph)
      idiomorph.morph(target, content.outerHTML, {
        morphStyle: "outerHTML",
        // What the reader opened or folded stays so.
        callbacks: {
          beforeAttributeUpdated: (name, node) =>
            !(name === "open" && node instanceof HTMLDetailsElement),
        },
      });
    else {
      target.replaceWith(content);
      return [content];
    }
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
