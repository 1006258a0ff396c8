/** The rows of the list that was left last, in this tab: what was opened from it can go on to its neighbours. */

const NAME = "list";

/** @param {Element} list whose rows carry a link each */
export function keep(list) {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (list.querySelectorAll(".row-link"));
  sessionStorage.setItem(NAME, JSON.stringify([...links].map((link) => link.pathname)));
}

/** @returns {string[]} the paths of its rows */
export function kept() {
  const found = JSON.parse(sessionStorage.getItem(NAME) ?? "[]");
  return Array.isArray(found) ? found : [];
}
