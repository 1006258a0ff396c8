"""Operations that await a run: an update its own run, a create without a position its parent."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec

from apps.core.connections import raw_cursor
from apps.ingest.models import DeferredOperation
from apps.ingest.operations import RunOperation, WireRun
from apps.ingest.run_content import parse_operation
from apps.trace_store import Attachment


class _Body(msgspec.Struct, kw_only=True):
    run: WireRun
    attachments: dict[str, tuple[str, str, int]]


_decoder = msgspec.json.Decoder(_Body)
REMOVAL_STATEMENT = """
DELETE FROM ingest_deferredoperation d USING {runs} r
WHERE d.workspace_id = r.workspace_id AND d.awaited_run_id = r.id
"""
"""Deletes the operations that await removed runs, see `hooks.register_removal`."""


def defer_operation(workspace_id: UUID, operation: RunOperation) -> None:
    """Store the operation until the run that it awaits is stored.

    An operation that is deferred again keeps its age, which limits how long it is kept.
    """
    awaited_run_id = operation.run.parent_run_id
    if operation.is_update or awaited_run_id is None:
        awaited_run_id = operation.run_id
    attachments = {
        name: (attachment.path, attachment.mime_type, attachment.size)
        for name, attachment in operation.content.attachments.items()
    }
    row = DeferredOperation(
        workspace_id=workspace_id,
        awaited_run_id=awaited_run_id,
        run_id=operation.run_id,
        body=msgspec.json.encode(_Body(run=operation.run, attachments=attachments)),
    )
    row.is_update = operation.is_update
    row.save(force_insert=True)
    if operation.deferred_at is not None:
        deferred = DeferredOperation.objects.for_workspace(workspace_id).filter(pk=row.pk)
        deferred.update(created_at=operation.deferred_at)


def is_awaited(workspace_id: UUID, run_ids: Collection[UUID]) -> bool:
    """Whether an operation awaits one of these runs."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM ingest_deferredoperation"
            " WHERE workspace_id = %b AND awaited_run_id = ANY(%b))",
            [workspace_id, list(run_ids)],
        )
        return cursor.fetchone() == (True,)


def take_awaiting(workspace_id: UUID, run_ids: Collection[UUID]) -> list[RunOperation]:
    """Delete and return the operations that await these runs, in order of receipt."""
    deferred = DeferredOperation.objects.for_workspace(workspace_id)
    awaiting = deferred.filter(awaited_run_id__in=run_ids).select_for_update(skip_locked=True)
    rows = list(awaiting.order_by("created_at", "pk"))
    deferred.filter(pk__in=[row.pk for row in rows]).delete()
    return [load_operation(row) for row in rows]


def load_operation(row: DeferredOperation) -> RunOperation:
    body = _decoder.decode(bytes(row.body))
    operation = RunOperation(row.is_update, body.run, deferred_at=row.created_at)
    parse_operation(operation)
    operation.content.attachments = {
        name: Attachment(name=name, path=path, mime_type=mime_type, size=size)
        for name, (path, mime_type, size) in body.attachments.items()
    }
    return operation
