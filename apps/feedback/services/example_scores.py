"""Scores of experiments by example, averaged over the repetitions of each example.

Each function runs one SQL query that joins feedback with the root runs of the experiments.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store import run_store

TOLERANCE = 1e-9
"""Averages that differ by less are equal: a sum of floats depends on the order of its terms."""
BINS = 10


def average_by_example(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    key: str,
    *,
    comparison_id: UUID | None = None,
) -> dict[UUID, dict[UUID, float]]:
    """Return the average score of the key by experiment and example; unscored ones are absent.

    The average of a run counts once, also if the run has several scores. With `comparison_id`, the
    scores of that comparison count, too.
    """
    tables, values = _scores_sql(workspace_id, project_ids, key, comparison_id)
    averages: dict[UUID, dict[UUID, float]] = {}
    with raw_cursor() as cursor:
        cursor.execute(
            sql(f"{tables} SELECT project_id, example_id, score FROM by_example"),
            values,
            binary=True,
        )
        rows = cursor.fetchall()
    for project_id, example_id, score in rows:
        averages.setdefault(project_id, {})[example_id] = score
    return averages


class ScoreChange(NamedTuple):
    """The scores of one key in an experiment, compared with those of the baseline."""

    project_id: UUID
    key: str
    examples: int
    """Examples with a score in the experiment."""
    average: float
    """The average of the examples."""
    compared: int
    """Examples with a score in both experiments."""
    higher: int
    lower: int


def compare_with_baseline(
    workspace_id: UUID,
    baseline_id: UUID,
    project_ids: Collection[UUID],
    *,
    comparison_id: UUID | None = None,
) -> list[ScoreChange]:
    """Count, for each key and experiment, the examples with another score than in the baseline."""
    tables, values = _scores_sql(workspace_id, project_ids, None, comparison_id)
    statement = f"""
        {tables}
        SELECT s.project_id, s.key, count(*), avg(s.score), count(b.score),
               count(*) FILTER (WHERE s.score > b.score + {TOLERANCE}),
               count(*) FILTER (WHERE s.score < b.score - {TOLERANCE})
        FROM by_example s LEFT JOIN by_example b
          ON b.project_id = %s AND b.example_id = s.example_id AND b.key = s.key
        GROUP BY s.project_id, s.key ORDER BY s.key, s.project_id
    """
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, baseline_id])
        return [ScoreChange(*row) for row in cursor]


def _scores_sql(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    key: str | None,
    comparison_id: UUID | None,
) -> tuple[str, list[Any]]:
    """Return a `WITH` clause whose table `by_example` has the average scores, and its values."""
    runs, run_values = run_store.experiment_runs_sql(workspace_id, project_ids)
    conditions = ["f.workspace_id = %s", "f.project_id = ANY(%s)"]
    values: list[Any] = [workspace_id, list(project_ids)]
    if key is not None:
        conditions.append("f.key = %s")
        values.append(key)
    if comparison_id is None:
        conditions.append("f.comparative_experiment_id IS NULL")
    else:
        conditions.append(
            "(f.comparative_experiment_id IS NULL OR f.comparative_experiment_id = %s)"
        )
        values.append(comparison_id)
    tables = f"""
        WITH runs AS ({runs}), by_run AS (
            SELECT f.project_id, f.run_id, f.key, avg(f.score) AS score
            FROM feedback_feedback f
            WHERE {" AND ".join(conditions)} AND f.run_id IS NOT NULL AND f.score IS NOT NULL
            GROUP BY f.project_id, f.run_id, f.key
        ), by_example AS (
            SELECT runs.project_id, runs.example_id, by_run.key, avg(by_run.score) AS score
            FROM by_run JOIN runs USING (project_id, run_id)
            GROUP BY runs.project_id, runs.example_id, by_run.key
        )
    """
    return tables, [*run_values, *values]


@dataclass(frozen=True, slots=True)
class ScoreRange:
    low: float
    high: float


def count_by_bin(
    workspace_id: UUID, project_ids: Collection[UUID], ranges: Mapping[str, ScoreRange]
) -> dict[UUID, dict[str, list[int]]]:
    """Return the number of scores in each of `BINS` equal parts of the key's range, by project.

    Scores outside of the range count in the first or the last part.
    """
    if not ranges or not project_ids:
        return {}
    statement = f"""
        SELECT f.project_id, f.key,
               least(greatest(width_bucket(f.score, k.low, k.high, {BINS}), 1), {BINS}), count(*)
        FROM feedback_feedback f
        JOIN unnest(%s::text[], %s::float8[], %s::float8[]) AS k (key, low, high) USING (key)
        WHERE f.workspace_id = %s AND f.project_id = ANY(%s) AND f.run_id IS NOT NULL
          AND f.comparative_experiment_id IS NULL AND f.score IS NOT NULL
        GROUP BY 1, 2, 3
    """
    keys = list(ranges)
    values = [
        keys,
        [ranges[key].low for key in keys],
        [ranges[key].high for key in keys],
        workspace_id,
        list(project_ids),
    ]
    counts: dict[UUID, dict[str, list[int]]] = {}
    with raw_cursor() as cursor:
        for project_id, key, number, count in cursor.execute(sql(statement), values):
            by_key = counts.setdefault(project_id, {})
            by_key.setdefault(key, [0] * BINS)[number - 1] = count
    return counts
