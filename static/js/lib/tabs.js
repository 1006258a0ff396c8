/** Scrolls tab bars that overflow on a small screen to their current tab. */

/** @param {ParentNode} root */
export function scrollToCurrentTab(root) {
  for (const tab of root.querySelectorAll(".tabs > [aria-current]")) {
    const tabBar = /** @type {HTMLElement} */ (tab.parentElement);
    if (tabBar.scrollWidth <= tabBar.clientWidth) continue;
    const { left, width } = tab.getBoundingClientRect();
    tabBar.scrollLeft =
      left - tabBar.getBoundingClientRect().left - (tabBar.clientWidth - width) / 2;
  }
}
