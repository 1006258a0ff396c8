"""Operations that await a run: an update its own run, a create without a place its parent."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec

from apps.ingest.models import DeferredOperation
from apps.ingest.operations import RunOperation, WireRun
from apps.ingest.run_content import parse_operation
from apps.trace_store import Attachment


class _Body(msgspec.Struct, kw_only=True):
    is_update: bool
    run: WireRun
    attachments: dict[str, tuple[str, str, int]]


_decoder = msgspec.json.Decoder(_Body)


def defer(workspace_id: UUID, operation: RunOperation) -> None:
    """Store the operation until the run that it awaits is stored."""
    awaited_run_id = operation.run.parent_run_id
    if operation.is_update or awaited_run_id is None:
        awaited_run_id = operation.run_id
    attachments = {
        name: (attachment.path, attachment.mime_type, attachment.size)
        for name, attachment in operation.content.attachments.items()
    }
    body = _Body(is_update=operation.is_update, run=operation.run, attachments=attachments)
    DeferredOperation(
        workspace_id=workspace_id,
        awaited_run_id=awaited_run_id,
        run_id=operation.run_id,
        body=msgspec.json.encode(body),
    ).save(force_insert=True)


def take(workspace_id: UUID, run_ids: Collection[UUID]) -> list[RunOperation]:
    """Delete and return the operations that await these runs, in order of receipt."""
    deferred = DeferredOperation.objects.for_workspace(workspace_id)
    awaiting = deferred.filter(awaited_run_id__in=run_ids).select_for_update(skip_locked=True)
    rows = list(awaiting.order_by("created_at", "pk"))
    deferred.filter(pk__in=[row.pk for row in rows]).delete()
    return [load(row) for row in rows]


def load(row: DeferredOperation) -> RunOperation:
    body = _decoder.decode(bytes(row.body))
    operation = RunOperation(body.is_update, body.run)
    parse_operation(operation)
    operation.content.attachments = {
        name: Attachment(name=name, path=path, mime_type=mime_type, size=size)
        for name, (path, mime_type, size) in body.attachments.items()
    }
    return operation


def delete_awaiting(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Delete the operations that await removed runs."""
    deferred = DeferredOperation.objects.for_workspace(workspace_id)
    deferred.filter(awaited_run_id__in=run_ids).delete()
