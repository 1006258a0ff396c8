/** Compares two texts word by word. */

/** @typedef {{ kind: "same" | "removed" | "added", text: string }} DiffPart */

const WORDS = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;
/** The most pairs of words that are compared; time and memory grow with them. */
const MAX_PAIRS = 4_000_000;

/**
 * Return the parts of both texts in order, a removed part before the added one that replaces it; null for texts that
 * are too long to compare.
 *
 * @param {string} before
 * @param {string} after
 * @returns {DiffPart[] | null}
 */
export function compareWords(before, after) {
  const first = before.match(WORDS) ?? [];
  const second = after.match(WORDS) ?? [];
  let start = 0;
  while (start < first.length && start < second.length && first[start] === second[start]) start++;
  let tail = 0;
  while (
    tail < first.length - start &&
    tail < second.length - start &&
    first[first.length - 1 - tail] === second[second.length - 1 - tail]
  )
    tail++;
  const removed = first.slice(start, first.length - tail);
  const added = second.slice(start, second.length - tail);
  if (removed.length * added.length > MAX_PAIRS) return null;
  /** @type {DiffPart[]} */
  const parts = [{ kind: "same", text: first.slice(0, start).join("") }];
  alignWords(removed, added, parts);
  parts.push({ kind: "same", text: first.slice(first.length - tail).join("") });
  return mergeParts(parts);
}

/**
 * Append the parts of a longest common subsequence of both lists.
 *
 * @param {string[]} first
 * @param {string[]} second
 * @param {DiffPart[]} parts
 */
function alignWords(first, second, parts) {
  const width = second.length + 1;
  // lengths[row * width + column]: the longest common subsequence of the words from row and from column on.
  const lengths = new Uint32Array((first.length + 1) * width);
  const lengthAt = (/** @type {number} */ row, /** @type {number} */ column) =>
    lengths[row * width + column] ?? 0;
  for (let row = first.length - 1; row >= 0; row--)
    for (let column = second.length - 1; column >= 0; column--)
      lengths[row * width + column] =
        first[row] === second[column]
          ? lengthAt(row + 1, column + 1) + 1
          : Math.max(lengthAt(row + 1, column), lengthAt(row, column + 1));
  let row = 0;
  let column = 0;
  while (row < first.length || column < second.length) {
    if (row < first.length && column < second.length && first[row] === second[column]) {
      parts.push({ kind: "same", text: first[row++] ?? "" });
      column++;
    } else if (
      column >= second.length ||
      (row < first.length && lengthAt(row + 1, column) >= lengthAt(row, column + 1))
    )
      parts.push({ kind: "removed", text: first[row++] ?? "" });
    else parts.push({ kind: "added", text: second[column++] ?? "" });
  }
}

/**
 * Join neighbours of one kind, and the changes on both sides of a space.
 *
 * @param {DiffPart[]} parts
 * @returns {DiffPart[]}
 */
function mergeParts(parts) {
  /** @type {DiffPart[]} */
  const merged = [];
  /** @type {{ removed: string, added: string }} */
  const change = { removed: "", added: "" };
  const flush = () => {
    if (change.removed) merged.push({ kind: "removed", text: change.removed });
    if (change.added) merged.push({ kind: "added", text: change.added });
    change.removed = change.added = "";
  };
  for (const [index, part] of parts.entries()) {
    if (!part.text) continue;
    const next = parts[index + 1];
    const isGap = part.kind === "same" && /^\s+$/.test(part.text) && next && next.kind !== "same";
    if (isGap && (change.removed || change.added)) {
      change.removed += part.text;
      change.added += part.text;
    } else if (part.kind === "same") {
      flush();
      const last = merged.at(-1);
      if (last?.kind === "same") last.text += part.text;
      else merged.push({ ...part });
    } else change[part.kind] += part.text;
  }
  flush();
  return merged;
}
