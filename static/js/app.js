/**
 * Loads the module of each custom element when the element first appears on the page, also after an htmx swap. Modules
 * with a large library are loaded when the page has loaded and such an element comes into view: until then the page
 * shows its plain text.
 */

import { scrollToCurrentTab } from "./lib/tabs.js";
import { rememberBrowserZone } from "./lib/time-zone.js";

/** @type {Record<string, () => Promise<unknown>>} */
const ELEMENTS = {
  "agent-call": () => import("./elements/agent-call.js"),
  "annotate-form": () => import("./elements/annotate-form.js"),
  "api-docs": () => import("./elements/api-docs.js"),
  "chart-grid": () => import("./elements/chart-grid.js"),
  "dirty-form": () => import("./elements/dirty-form.js"),
  "compare-steps": () => import("./elements/compare-steps.js"),
  "command-palette": () => import("./elements/command-palette.js"),
  "confirm-name": () => import("./elements/confirm-name.js"),
  "copy-button": () => import("./elements/copy-button.js"),
  "diff-view": () => import("./elements/diff-view.js"),
  "density-button": () => import("./elements/density-button.js"),
  "example-peek": () => import("./elements/example-peek.js"),
  "fold-view": () => import("./elements/fold-view.js"),
  "first-run": () => import("./elements/first-run.js"),
  "facets-toggle": () => import("./elements/facets-toggle.js"),
  "import-wizard": () => import("./elements/import-wizard.js"),
  "item-review": () => import("./elements/item-review.js"),
  "json-field": () => import("./elements/json-field.js"),
  "kept-choice": () => import("./elements/kept-choice.js"),
  "json-view": () => import("./elements/json-view.js"),
  "shortcut-help": () => import("./elements/shortcut-help.js"),
  "list-navigator": () => import("./elements/list-navigator.js"),
  "live-log": () => import("./elements/live-log.js"),
  "markdown-view": () => import("./elements/markdown-view.js"),
  "modal-dialog": () => import("./elements/modal-dialog.js"),
  "nav-drawer": () => import("./elements/nav-drawer.js"),
  "nav-toggle": () => import("./elements/nav-toggle.js"),
  "number-facet": () => import("./elements/number-facet.js"),
  "prompt-column": () => import("./elements/prompt-column.js"),
  "prompt-playground": () => import("./elements/prompt-playground.js"),
  "query-bar": () => import("./elements/query-bar.js"),
  "row-preview": () => import("./elements/row-preview.js"),
  "dropdown-menu": () => import("./elements/dropdown-menu.js"),
  "relative-time": () => import("./elements/relative-time.js"),
  "row-navigation": () => import("./elements/row-navigation.js"),
  "run-table": () => import("./elements/run-table.js"),
  "row-selection": () => import("./elements/row-selection.js"),
  "split-panels": () => import("./elements/split-panels.js"),
  "tab-set": () => import("./elements/tab-set.js"),
  "template-field": () => import("./elements/template-field.js"),
  "theme-toggle": () => import("./elements/theme-toggle.js"),
  "time-chart": () => import("./elements/time-chart.js"),
  "toast-region": () => import("./elements/toast-region.js"),
  "trace-transcript": () => import("./elements/trace-transcript.js"),
  "trace-tree": () => import("./elements/trace-tree.js"),
  "variable-changes": () => import("./elements/variable-changes.js"),
};

const WHEN_VISIBLE = new Set(["api-docs", "json-view", "markdown-view", "time-chart"]);

const visibilityObserver = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      visibilityObserver.unobserve(target);
      if (document.readyState === "complete") loadModule(target.localName);
      else addEventListener("load", () => loadModule(target.localName), { once: true });
    }
  },
  { rootMargin: "200px" },
);

const undefinedElements = Object.keys(ELEMENTS)
  .map((name) => `${name}:not(:defined)`)
  .join(",");
const loaded = new Set();

/** @param {ParentNode} root */
function loadElements(root) {
  for (const element of root.querySelectorAll(undefinedElements)) loadElement(element);
  if (!loaded.has("htmx") && root.querySelector("[hx-get], [hx-post]")) {
    loaded.add("htmx");
    import("./htmx.js");
  }
}

/** @param {Element} element */
function loadElement(element) {
  if (loaded.has(element.localName)) return;
  if (WHEN_VISIBLE.has(element.localName)) visibilityObserver.observe(element);
  else loadModule(element.localName);
}

/** @param {string} name */
function loadModule(name) {
  if (loaded.has(name)) return;
  loaded.add(name);
  ELEMENTS[name]?.();
}

rememberBrowserZone();
loadElements(document);
scrollToCurrentTab(document);
new MutationObserver((mutations) => {
  for (const mutation of mutations) {
    for (const node of mutation.addedNodes) {
      if (!(node instanceof Element)) continue;
      if (node.localName in ELEMENTS) loadElement(node);
      if (node.firstElementChild) loadElements(node);
    }
  }
}).observe(document.body, { childList: true, subtree: true });
