"""Writes feedback rows in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.core.json import dumps, storable
from apps.feedback.models import Feedback

_IMMUTABLE = ("id", "created_at")
# Copied from the run when feedback is attached; an upsert without them keeps the stored values.
_FROM_RUN = {
    "project_id": "uuid",
    "trace_id": "uuid",
    "is_root": "boolean",
    "start_time": "timestamptz",
    "thread_key": "text",
}
_JSON = ("value", "correction", "source", "extra")
_TYPES = {
    "id": "uuid",
    "created_at": "timestamptz",
    "run_id": "uuid",
    **_FROM_RUN,
    "is_on_thread": "boolean",
    "is_pending": "boolean",
    "keeps_trace": "boolean",
    "key": "text",
    "score": "float8",
    "label": "text",
    "comment": "text",
    "source_type": "text",
    "user_id": "uuid",
    "feedback_group_id": "uuid",
    "comparative_experiment_id": "uuid",
    "formula_id": "uuid",
    "is_error": "boolean",
    **dict.fromkeys(_JSON, "text"),
}
_SET = ", ".join(
    f"{name} = COALESCE(excluded.{name},"
    f" CASE WHEN old.run_id = excluded.run_id THEN old.{name} END)"
    if name in _FROM_RUN
    else f"{name} = excluded.{name}"
    for name in _TYPES
    if name not in _IMMUTABLE
)
_UPSERT = (
    f"INSERT INTO feedback_feedback AS old (workspace_id, modified_at, {', '.join(_TYPES)})"  # noqa: S608
    " SELECT %s, clock_timestamp(), "
    + ", ".join(f"input.{name}::jsonb" if name in _JSON else f"input.{name}" for name in _TYPES)
    + " FROM unnest("
    + ", ".join(f"%s::{kind}[]" for kind in _TYPES.values())
    + f") AS input({', '.join(_TYPES)})"
    f" ON CONFLICT (id) DO UPDATE SET modified_at = clock_timestamp(), {_SET}"
    " WHERE old.workspace_id = excluded.workspace_id RETURNING id"
)


def upsert_feedback(workspace_id: UUID, rows: Sequence[Feedback]) -> set[UUID]:
    """Insert the rows or replace those with the same ids; return the written ids.

    An id that belongs to another workspace is not written. If rows share an id, the last is
    written. Rows are locked in id order, so that concurrent requests do not deadlock.
    """
    if not rows:
        return set()
    by_id = {row.pk: row for row in rows}
    ordered = [by_id[pk] for pk in sorted(by_id)]
    columns = [
        [_json(getattr(row, name)) if name in _JSON else getattr(row, name) for row in ordered]
        for name in _TYPES
    ]
    with raw_cursor() as cursor:
        cursor.execute(sql(_UPSERT), [workspace_id, *columns])
        return {pk for (pk,) in cursor}


def _json(value: object) -> str | None:
    return None if value is None else storable(dumps(value)).decode()
