/** The runs of a trace as `<trace-tree>` keeps them: read once, then asked for the rows to show. */

/**
 * @typedef {{ id: string, index: number, parent: number, depth: number, type: string, name: string, status: string,
 *   from: number, took: number | null, tokensIn: number | null, tokensOut: number | null, cost: number | null,
 *   firstToken: number | null, said: [string, string][], below: number, last: number }} Run
 * @typedef {[string, number, string, string, string, number, number | null, number | null, number | null, number | null,
 *   number | null, [string, string][]]} Line
 */

/**
 * @param {Line[]} lines depth first; `parent` is an index or -1
 * @param {number} total
 * @returns {Run[]}
 */
export function readRuns(lines, total) {
  /** @type {Run[]} */
  const runs = [];
  lines.forEach(([id, parent, type, name, status, from, took, tokensIn, tokensOut, cost, firstToken, said], index) => {
    const depth = parent < 0 ? 0 : (runs[parent]?.depth ?? 0) + 1;
    const last = took === null ? total : from + took;
    runs.push({ id, index, parent, depth, type, name, status, from, took, tokensIn, tokensOut, cost, firstToken, said, below: 0, last });
    const above = runs[parent];
    if (above) above.below += 1;
  });
  // Children come after their parents, so one way back tells each when the last below it ended.
  for (let at = runs.length - 1; at > 0; at--) {
    const run = /** @type {Run} */ (runs[at]);
    const above = runs[run.parent];
    if (above && run.last > above.last) above.last = run.last;
  }
  return runs;
}

/**
 * Those that match, with what leads to them.
 *
 * @param {Run[]} runs
 * @param {(run: Run) => boolean} matches
 */
export function matching(runs, matches) {
  /** @type {Set<number>} */
  const found = new Set();
  /** @type {Set<number>} */
  const kept = new Set();
  for (const run of runs) {
    if (!matches(run)) continue;
    found.add(run.index);
    for (let at = run.index; at >= 0 && !kept.has(at); at = runs[at]?.parent ?? -1) kept.add(at);
  }
  return { found, kept };
}

/**
 * The rows that are neither folded away nor left out.
 *
 * @param {Run[]} runs
 * @param {Set<number>} folded
 * @param {Set<number> | null} kept
 * @param {number} least milliseconds that a run must have taken; its parents stay with it
 */
export function visible(runs, folded, kept, least) {
  /** @type {Run[]} */
  const rows = [];
  let hiddenBelow = Infinity;
  for (const run of runs) {
    if (run.depth > hiddenBelow) continue;
    hiddenBelow = Infinity;
    if (kept && !kept.has(run.index)) continue;
    if (!kept && least && run.last - run.from < least && run.depth > 0 && run.status !== "error") {
      hiddenBelow = run.depth;
      continue;
    }
    rows.push(run);
    if (!kept && folded.has(run.index)) hiddenBelow = run.depth;
  }
  return rows;
}
