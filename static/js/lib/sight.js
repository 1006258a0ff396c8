/** Tabs that scroll sideways on a small screen begin with the current one in sight. */

/** @param {ParentNode} root */
export function showCurrent(root) {
  for (const tab of root.querySelectorAll(".tabs > [aria-current]")) {
    const strip = /** @type {HTMLElement} */ (tab.parentElement);
    if (strip.scrollWidth <= strip.clientWidth) continue;
    const { left, width } = tab.getBoundingClientRect();
    strip.scrollLeft = left - strip.getBoundingClientRect().left - (strip.clientWidth - width) / 2;
  }
}
