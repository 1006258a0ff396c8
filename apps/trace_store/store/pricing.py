"""Runs whose tokens are known and whose costs are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.trace_store.store.raw import raw_cursor
from apps.trace_store.store.writing import Key

_FIND = """
SELECT r.id, r.project_id, r.placed_at, r.model, r.metadata->>'ls_provider',
    r.start_time, r.prompt_tokens, r.completion_tokens, r.usage_details::text
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, placed_at)
JOIN tracing_run r ON r.workspace_id = %s AND r.id = k.id AND r.project_id = k.project_id
    AND r.placed_at = k.placed_at AND r.placed_at BETWEEN %s AND %s
WHERE r.model IS NOT NULL AND (r.prompt_tokens IS NOT NULL OR r.completion_tokens IS NOT NULL)
    AND r.prompt_cost IS NULL AND r.completion_cost IS NULL AND r.total_cost IS NULL
"""
_PUT = """
UPDATE tracing_run r SET price_model_id = s.entry, prompt_cost = s.prompt,
    completion_cost = s.completion, total_cost = s.total,
    usage_details = coalesce(s.details::jsonb, r.usage_details)
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::uuid[], %s::numeric[], %s::numeric[],
    %s::numeric[], %s::text[])
    AS s(id, project_id, placed_at, entry, prompt, completion, total, details)
WHERE r.workspace_id = %s AND r.id = s.id AND r.project_id = s.project_id
    AND r.placed_at = s.placed_at AND r.placed_at BETWEEN %s AND %s AND r.total_cost IS NULL
"""


@dataclass(frozen=True, slots=True)
class Unpriced:
    key: Key
    model: str
    provider: str | None
    columns: dict[str, Any]
    details: Mapping[str, Any] | None


def without_costs(workspace_id: UUID, keys: Sequence[Key]) -> list[Unpriced]:
    """Those of the runs that a price might be found for."""
    if not keys:
        return []
    ids, projects, times = (list(column) for column in zip(*keys, strict=True))
    with raw_cursor() as cursor:
        cursor.execute(_FIND, [ids, projects, times, workspace_id, min(times), max(times)])
        return [
            Unpriced(
                (row[0], row[1], row[2]),
                row[3],
                row[4],
                {"start_time": row[5], "prompt_tokens": row[6], "completion_tokens": row[7]},
                None if row[8] is None else loads(row[8]),
            )
            for row in cursor
        ]


def put_costs(
    workspace_id: UUID, priced: Sequence[tuple[Key, Mapping[str, Any], str | None]]
) -> None:
    """Write costs beside runs that have none; rows in the order of their keys."""
    if not priced:
        return
    ordered = sorted(priced, key=lambda one: one[0])
    names = ("price_model_id", "prompt_cost", "completion_cost", "total_cost")
    values = [[columns.get(name) for _, columns, _ in ordered] for name in names]
    ids, projects, times = (list(column) for column in zip(*(k for k, *_ in ordered), strict=True))
    details = [one for *_, one in ordered]
    with raw_cursor() as cursor:
        cursor.execute(
            _PUT,
            [ids, projects, times, *values, details, workspace_id, min(times), max(times)],
        )
