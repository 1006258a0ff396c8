/** Opens a row in the preview panel next to its list. */

/**
 * Handle a click in a list: a plain click on a row link dispatches `row-open`, and <row-preview> prevents its default.
 *
 * @param {MouseEvent} event
 */
export function openRow(event) {
  const link = /** @type {Element} */ (event.target).closest(".row-link");
  if (
    !(link instanceof HTMLAnchorElement) ||
    event.ctrlKey ||
    event.metaKey ||
    event.shiftKey ||
    event.button
  )
    return;
  const rowOpen = new CustomEvent("row-open", {
    detail: { link },
    bubbles: true,
    cancelable: true,
  });
  // A key press on the link is a click without `detail` and opens the page.
  if (event.detail && !link.dispatchEvent(rowOpen)) event.preventDefault();
}
