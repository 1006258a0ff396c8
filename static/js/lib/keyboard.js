/** Which keys are for us: not those typed into a field, nor those meant for the browser. */

/** @param {KeyboardEvent} event */
export function isTyping(event) {
  const target = event.composedPath()[0];
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio]), textarea, select"))
  );
}

/** @param {KeyboardEvent} event */
export function isPlain(event) {
  return !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event) && !document.querySelector("dialog[open]");
}
