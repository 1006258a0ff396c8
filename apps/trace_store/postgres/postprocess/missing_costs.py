"""Adds costs to runs whose tokens and model arrived in different requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.core.json import dumps_text, loads
from apps.trace_store.pricing import costs
from apps.trace_store.pricing.costs import ModelReference
from apps.trace_store.types import ChangedRun, RunKey

_SELECT_UNPRICED = """
SELECT r.id, r.project_id, r.partition_time, r.model, r.metadata->>'ls_provider',
    r.start_time, r.prompt_tokens, r.completion_tokens, r.usage_details::text
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, partition_time)
JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id AND r.project_id = k.project_id
    AND r.partition_time = k.partition_time AND r.partition_time BETWEEN %s AND %s
WHERE r.model IS NOT NULL AND (r.prompt_tokens IS NOT NULL OR r.completion_tokens IS NOT NULL)
    AND r.prompt_cost IS NULL AND r.completion_cost IS NULL AND r.total_cost IS NULL
"""
_UPDATE_COSTS = """
UPDATE trace_store_run r SET price_model_id = s.entry, prompt_cost = s.prompt,
    completion_cost = s.completion, total_cost = s.total,
    usage_details = coalesce(s.details::jsonb, r.usage_details)
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::uuid[], %s::numeric[], %s::numeric[],
    %s::numeric[], %s::text[])
    AS s(id, project_id, partition_time, entry, prompt, completion, total, details)
WHERE r.workspace_id = %s AND r.id = s.id AND r.project_id = s.project_id
    AND r.partition_time = s.partition_time AND r.partition_time BETWEEN %s AND %s
    AND r.total_cost IS NULL
"""


@dataclass(frozen=True, slots=True)
class UnpricedRun:
    key: RunKey
    model: str
    provider: str | None
    columns: dict[str, Any]
    details: Mapping[str, Any] | None


def find_unpriced_runs(workspace_id: UUID, keys: Sequence[RunKey]) -> list[UnpricedRun]:
    """Return the runs with tokens and a model but without costs."""
    if not keys:
        return []
    ids, projects, times = (list(column) for column in zip(*keys, strict=True))
    with raw_cursor() as cursor:
        cursor.execute(
            _SELECT_UNPRICED, [ids, projects, times, workspace_id, min(times), max(times)]
        )
        return [
            UnpricedRun(
                (row[0], row[1], row[2]),
                row[3],
                row[4],
                {"start_time": row[5], "prompt_tokens": row[6], "completion_tokens": row[7]},
                None if row[8] is None else loads(row[8]),
            )
            for row in cursor
        ]


def write_costs(
    workspace_id: UUID, priced: Sequence[tuple[RunKey, Mapping[str, Any], str | None]]
) -> None:
    """Store the costs of runs that have none, in key order."""
    if not priced:
        return
    ordered = sorted(priced, key=lambda entry: entry[0])
    names = ("price_model_id", "prompt_cost", "completion_cost", "total_cost")
    values = [[columns.get(name) for _, columns, _ in ordered] for name in names]
    ids, projects, times = (list(column) for column in zip(*(k for k, *_ in ordered), strict=True))
    details = [detail for *_, detail in ordered]
    with raw_cursor() as cursor:
        cursor.execute(
            _UPDATE_COSTS,
            [ids, projects, times, *values, details, workspace_id, min(times), max(times)],
        )


def add_missing_costs(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Price those of the runs that have a model and tokens but no costs. Safe to repeat."""
    keys = [(item.run_id, item.project_id, item.partition_time) for item in changed_runs]
    priced = []
    for run in find_unpriced_runs(workspace_id, keys):
        details: dict[str, Any] = dict(run.details or {})
        columns = run.columns
        costs.add_costs(
            workspace_id,
            ModelReference({"ls_model_name": run.model}, run.provider),
            columns,
            details,
        )
        if "price_model_id" in columns:
            priced.append((run.key, columns, dumps_text(details) if details else None))
    write_costs(workspace_id, priced)
