/** Decides whether a key press is a page shortcut. */

/** @param {KeyboardEvent} event */
export function isTyping(event) {
  const target = event.composedPath()[0];
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches("input:not([type=checkbox], [type=radio]), textarea, select"))
  );
}

/** @param {KeyboardEvent} event */
export function isShortcut(event) {
  return (
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey &&
    !isTyping(event) &&
    !document.querySelector("dialog[open]")
  );
}
