/**
 * Dispatches the keys of a page: decides whether a press is a shortcut, and owns the prefix G. After G, the next key is
 * only the second of the pair, so that G D opens the deployments and changes no density.
 */

const PREFIX = "g";
const PREFIX_MS = 800;

/** The keys that follow the prefix. @type {Map<string, () => void>} */
const sequences = new Map();
/** Presses of the prefix and of the key after it, which are no other shortcut. @type {WeakSet<KeyboardEvent>} */
const taken = new WeakSet();
let prefixedAt = -Infinity;

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
    !taken.has(event) &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey &&
    !isTyping(event) &&
    !document.querySelector("dialog[open]")
  );
}

/**
 * Bind keys that follow G, by key; returns a function that releases them.
 *
 * @param {Record<string, () => void>} handlers
 */
export function bindSequences(handlers) {
  for (const [key, handler] of Object.entries(handlers)) sequences.set(key, handler);
  return () => {
    for (const key of Object.keys(handlers)) sequences.delete(key);
  };
}

// In the capture phase, before the listeners of elements ask whether the press is theirs.
addEventListener(
  "keydown",
  (event) => {
    if (event.repeat || ["Shift", "Control", "Alt", "Meta"].includes(event.key)) return;
    if (!isShortcut(event)) {
      prefixedAt = -Infinity;
      return;
    }
    const isSecond = event.timeStamp - prefixedAt < PREFIX_MS;
    prefixedAt = -Infinity;
    if (isSecond) {
      taken.add(event);
      const handler = sequences.get(event.key);
      if (!handler) return;
      event.preventDefault();
      handler();
    } else if (event.key === PREFIX) {
      taken.add(event);
      prefixedAt = event.timeStamp;
    }
  },
  { capture: true },
);
