/** Decides whether a key press is a page shortcut. */

const PREFIX_MS = 800;
let prefixAt = -Infinity;
/** Whether the current key follows G, the prefix of the shortcuts that open a section. */
let isPrefixed = false;

document.addEventListener(
  "keydown",
  (event) => {
    isPrefixed = event.timeStamp - prefixAt < PREFIX_MS;
    const isPrefix = event.key.toLowerCase() === "g" && !isPrefixed && !isTyping(event);
    prefixAt = isPrefix ? event.timeStamp : -Infinity;
  },
  { capture: true },
);

/** @param {KeyboardEvent} event */
export function isTyping(event) {
  const target = event.composedPath()[0];
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches("input:not([type=checkbox], [type=radio]), textarea, select"))
  );
}

/**
 * @param {KeyboardEvent} event
 * @param {{ afterPrefix?: boolean }} [options] a shortcut of G and another key; other shortcuts ignore that key
 */
export function isShortcut(event, { afterPrefix = false } = {}) {
  return (
    (afterPrefix || !isPrefixed) &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey &&
    !isTyping(event) &&
    !document.querySelector("dialog[open]")
  );
}
