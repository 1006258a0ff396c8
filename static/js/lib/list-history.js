/** Stores the rows of the list that was left last in this tab, so that a detail page can link to its neighbours. */

const STORAGE_KEY = "list";

/** @param {Element} list each row contains a `.row-link` */
export function saveList(list) {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (list.querySelectorAll(".row-link"));
  sessionStorage.setItem(STORAGE_KEY, JSON.stringify([...links].map((link) => link.pathname)));
}

/** @returns {string[]} the paths of the stored rows */
export function loadList() {
  const paths = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]");
  return Array.isArray(paths) ? paths : [];
}
