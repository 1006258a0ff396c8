/** Data model of `<trace-tree>`: the runs of a trace and the rows that are visible. */

/**
 * @typedef {{ id: string, index: number, parent: number, depth: number, type: string, name: string, status: string,
 *   start: number, duration: number | null, tokensIn: number | null, tokensOut: number | null, cost: number | null,
 *   firstToken: number | null, feedback: [string, string][], childCount: number, subtreeEnd: number }} Run
 * @typedef {[string, number, string, string, string, number, number | null, number | null, number | null, number | null,
 *   number | null, [string, string][]]} RunTuple
 */

/**
 * @param {RunTuple[]} tuples depth first; `parent` is an index or -1
 * @param {number} total
 * @returns {Run[]}
 */
export function readRuns(tuples, total) {
  /** @type {Run[]} */
  const runs = [];
  tuples.forEach(
    (
      [
        id,
        parent,
        type,
        name,
        status,
        start,
        duration,
        tokensIn,
        tokensOut,
        cost,
        firstToken,
        feedback,
      ],
      index,
    ) => {
      const depth = parent < 0 ? 0 : (runs[parent]?.depth ?? 0) + 1;
      const subtreeEnd = duration === null ? total : start + duration;
      runs.push({
        id,
        index,
        parent,
        depth,
        type,
        name,
        status,
        start,
        duration,
        tokensIn,
        tokensOut,
        cost,
        firstToken,
        feedback,
        childCount: 0,
        subtreeEnd,
      });
      const parentRun = runs[parent];
      if (parentRun) parentRun.childCount += 1;
    },
  );
  // Children follow their parents, so one backward pass computes the end of each subtree.
  for (let index = runs.length - 1; index > 0; index--) {
    const run = /** @type {Run} */ (runs[index]);
    const parentRun = runs[run.parent];
    if (parentRun && run.subtreeEnd > parentRun.subtreeEnd) parentRun.subtreeEnd = run.subtreeEnd;
  }
  return runs;
}

/**
 * Find the matching runs, and the runs to show: matches and their ancestors.
 *
 * @param {Run[]} runs
 * @param {(run: Run) => boolean} matches
 */
export function findMatches(runs, matches) {
  /** @type {Set<number>} */
  const matched = new Set();
  /** @type {Set<number>} */
  const shown = new Set();
  for (const run of runs) {
    if (!matches(run)) continue;
    matched.add(run.index);
    for (let index = run.index; index >= 0 && !shown.has(index); index = runs[index]?.parent ?? -1)
      shown.add(index);
  }
  return { matched, shown };
}

/**
 * Return the runs that are neither collapsed nor filtered out.
 *
 * @param {Run[]} runs
 * @param {Set<number>} collapsed
 * @param {Set<number> | null} shown
 * @param {number} minDuration shortest subtree duration to show, in milliseconds
 */
export function findVisibleRuns(runs, collapsed, shown, minDuration) {
  /** @type {Run[]} */
  const rows = [];
  let hiddenDepth = Infinity;
  for (const run of runs) {
    if (run.depth > hiddenDepth) continue;
    hiddenDepth = Infinity;
    if (shown && !shown.has(run.index)) continue;
    if (
      !shown &&
      minDuration &&
      run.subtreeEnd - run.start < minDuration &&
      run.depth > 0 &&
      run.status !== "error"
    ) {
      hiddenDepth = run.depth;
      continue;
    }
    rows.push(run);
    if (!shown && collapsed.has(run.index)) hiddenDepth = run.depth;
  }
  return rows;
}
