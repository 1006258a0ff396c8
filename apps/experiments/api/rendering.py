"""Renders results, groups and comparisons of experiments as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from apps.core.json import dumps_text
from apps.datasets.api.rendering import EXAMPLE_FIELDS, example_json
from apps.experiments.models import ComparativeExperiment
from apps.experiments.services.results import ResultQuery, ResultRow
from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import Payload, RunDetail
from apps.tracing.api.v1 import rendering as v1
from apps.tracing.api.v2 import rendering as v2
from apps.tracing.services.statistics import format_cost


def rows_json(
    query: ResultQuery, rows: Sequence[ResultRow], select: Collection[str] | None
) -> list[dict[str, Any]]:
    """Return the examples with their v1 runs, which have the selected payloads, by default all."""
    runs = [run for row in rows for run in row.runs]
    rendered = v1.runs_json(query.workspace_id, runs, select)
    return _combine(query, rows, runs, rendered)


def rows_v2_json(
    query: ResultQuery, rows: Sequence[ResultRow], selected: Collection[str]
) -> list[dict[str, Any]]:
    """Return the examples with their v2 runs, which have the selected fields."""
    runs = [run for row in rows for run in row.runs]
    rendered = v2.runs_json(query.workspace_id, runs, selected)
    return _combine(query, rows, runs, rendered)


def _combine(
    query: ResultQuery,
    rows: Sequence[ResultRow],
    runs: Sequence[RunDetail],
    rendered: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    if query.comparison_id is not None:
        stats = run_feedback(query, runs)
        for run, run_json in zip(runs, rendered, strict=True):
            if "feedback_stats" in run_json:
                run_json["feedback_stats"] = stats.get(run.row.id, {})
    by_id = {
        (run.row.project_id, run.row.id): run_json
        for run, run_json in zip(runs, rendered, strict=True)
    }
    return [
        _example_json(query, row)
        | {"runs": [by_id[run.row.project_id, run.row.id] for run in row.runs]}
        for row in rows
    ]


def run_feedback(query: ResultQuery, runs: Sequence[RunDetail]) -> Mapping[UUID, FeedbackStats]:
    """Return the feedback statistics by run, with those of the query's comparison."""
    return score_stats.by_run(
        query.workspace_id, [run.row.id for run in runs], comparison_id=query.comparison_id
    )


def _example_json(query: ResultQuery, row: ResultRow) -> dict[str, Any]:
    if row.revision is not None:
        return example_json(row.revision, query.dataset.name)
    # Clients need the fields also of an example that was erased.
    missing: dict[str, Any] = dict.fromkeys(EXAMPLE_FIELDS)
    return missing | {
        "id": row.example_id,
        "name": f"#{str(row.example_id)[-4:]} @ {query.dataset.name}",
        "dataset_id": query.dataset.pk,
        "created_at": row.first_time,
        "inputs": {},
    }


def comparison_json(comparison: ComparativeExperiment) -> dict[str, Any]:
    return {
        "id": comparison.pk,
        "tenant_id": comparison.workspace_id,
        "name": comparison.name,
        "description": comparison.description,
        "created_at": comparison.created_at,
        "modified_at": comparison.modified_at,
        "reference_dataset_id": comparison.dataset_id,
        "extra": comparison.extra,
    }


def listed_comparison_json(
    comparison: ComparativeExperiment,
    names: Mapping[UUID, str],
    feedback: Mapping[UUID, FeedbackStats],
) -> dict[str, Any]:
    """Return the comparison with its experiments and their scores.

    `feedback_stats` has the statistics over all experiments by key; their member `experiments` has
    those of each experiment.
    """
    stats = score_stats.merge_stats(feedback.values())
    return comparison_json(comparison) | {
        "experiments_info": [
            {"id": experiment_id, "name": names[experiment_id]}
            for experiment_id in comparison.experiment_ids
            if experiment_id in names
        ],
        "feedback_stats": {
            key: total
            | {
                "experiments": {
                    str(project_id): by_key[key]
                    for project_id, by_key in feedback.items()
                    if key in by_key
                }
            }
            for key, total in stats.items()
        },
    }


CSV_COLUMNS = (
    "example_id", "inputs", "reference_outputs", "experiment", "run_id", "status", "outputs",
    "error", "start_time", "latency_seconds", "total_tokens", "total_cost",
)  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def rows_csv(
    query: ResultQuery, pages: Iterable[Sequence[ResultRow]], keys: Sequence[str]
) -> Iterator[bytes]:
    """Yield a table with a line for each run and a column for each feedback key."""
    names = {project.pk: project.name for project in query.experiments}
    header = [*CSV_COLUMNS, *(f"feedback.{key}" for key in keys)]
    yield _csv_line([_text_cell(text) for text in header])
    for rows in pages:
        runs = [run for row in rows for run in row.runs]
        feedback = run_feedback(query, runs)
        for row in rows:
            example = _example_cells(row)
            for run in row.runs:
                scores = _score_cells(feedback.get(run.row.id, {}), keys)
                experiment = _text_cell(names[run.row.project_id])
                yield _csv_line([*example, experiment, *_run_cells(run), *scores])


def _example_cells(row: ResultRow) -> list[str]:
    revision = row.revision
    inputs = "" if revision is None else dumps_text(revision.inputs)
    outputs = "" if revision is None or revision.outputs is None else dumps_text(revision.outputs)
    return [str(row.example_id), inputs, outputs]


def _run_cells(run: RunDetail) -> list[str]:
    row = run.row
    latency = row.latency
    tokens = row.usage.total_tokens
    return [
        str(row.id),
        row.status,
        "" if (outputs := run.value(Payload.OUTPUTS)) is None else dumps_text(outputs),
        _text_cell(str(run.value(Payload.ERROR) or "")),
        row.start_time.isoformat(),
        "" if latency is None else str(latency.total_seconds()),
        "" if tokens is None else str(tokens),
        format_cost(row.usage.total_cost) or "",
    ]


def _score_cells(stats: FeedbackStats, keys: Sequence[str]) -> list[str]:
    scores = [stats.get(key, {}).get("avg") for key in keys]
    return ["" if score is None else str(score) for score in scores]


def _text_cell(text: str) -> str:
    """Return the text so that a spreadsheet does not evaluate it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _csv_line(cells: Sequence[str]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue().encode()
