/**
 * Loads what a page uses, when it uses it: each custom element is a module of its own name.
 * Elements that arrive later (an htmx swap, a fragment) are found the same way.
 */

import { showCurrent } from "./lib/sight.js";

/** @type {Record<string, () => Promise<unknown>>} */
const ELEMENTS = {
  "annotate-form": () => import("./elements/annotate-form.js"),
  "api-docs": () => import("./elements/api-docs.js"),
  "changed-form": () => import("./elements/changed-form.js"),
  "command-palette": () => import("./elements/command-palette.js"),
  "confirm-name": () => import("./elements/confirm-name.js"),
  "copy-button": () => import("./elements/copy-button.js"),
  "density-button": () => import("./elements/density-button.js"),
  "filter-input": () => import("./elements/filter-input.js"),
  "fold-facets": () => import("./elements/fold-facets.js"),
  "json-view": () => import("./elements/json-view.js"),
  "key-help": () => import("./elements/key-help.js"),
  "list-walk": () => import("./elements/list-walk.js"),
  "live-log": () => import("./elements/live-log.js"),
  "mark-down": () => import("./elements/mark-down.js"),
  "modal-dialog": () => import("./elements/modal-dialog.js"),
  "nav-drawer": () => import("./elements/nav-drawer.js"),
  "nav-rail": () => import("./elements/nav-rail.js"),
  "peek-panel": () => import("./elements/peek-panel.js"),
  "pop-menu": () => import("./elements/pop-menu.js"),
  "relative-time": () => import("./elements/relative-time.js"),
  "row-keys": () => import("./elements/row-keys.js"),
  "run-table": () => import("./elements/run-table.js"),
  "select-rows": () => import("./elements/select-rows.js"),
  "split-panels": () => import("./elements/split-panels.js"),
  "tab-set": () => import("./elements/tab-set.js"),
  "theme-toggle": () => import("./elements/theme-toggle.js"),
  "time-chart": () => import("./elements/time-chart.js"),
  "toast-region": () => import("./elements/toast-region.js"),
  "trace-tree": () => import("./elements/trace-tree.js"),
};

const wanted = Object.keys(ELEMENTS)
  .map((name) => `${name}:not(:defined)`)
  .join(",");
const asked = new Set();

/** @param {ParentNode} root */
function wake(root) {
  for (const element of root.querySelectorAll(wanted)) load(element.localName);
  if (!asked.has("htmx") && root.querySelector("[hx-get], [hx-post]")) {
    asked.add("htmx");
    import("./htmx.js");
  }
}

/** @param {string} name */
function load(name) {
  if (asked.has(name)) return;
  asked.add(name);
  ELEMENTS[name]?.();
}

wake(document);
showCurrent(document);
new MutationObserver((changes) => {
  for (const change of changes) {
    for (const node of change.addedNodes) {
      if (!(node instanceof Element)) continue;
      if (node.localName in ELEMENTS) load(node.localName);
      if (node.firstElementChild) wake(node);
    }
  }
}).observe(document.body, { childList: true, subtree: true });
