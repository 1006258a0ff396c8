/** Inserts server-rendered fragments into the page. */

/**
 * Replace the content of an element and activate the htmx attributes in it.
 *
 * @param {HTMLElement} target
 * @param {string} html
 */
export async function insertFragment(target, html) {
  target.innerHTML = html;
  target.scrollTop = 0;
  if (!target.querySelector("[hx-get], [hx-post]")) return;
  const { processHtmx } = await import("../htmx.js");
  processHtmx(target);
}
