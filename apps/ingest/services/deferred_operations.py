"""Operations that wait for a run: an update for its own, a child without a place for its parent."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec

from apps.ingest.models import DeferredOperation
from apps.ingest.operations import Operation, read_operation
from apps.ingest.wire import WireRun
from apps.trace_store.store.types import Attachment


class _Body(msgspec.Struct, kw_only=True):
    is_update: bool
    run: WireRun
    attachments: dict[str, tuple[str, str, int]]


_decoder = msgspec.json.Decoder(_Body)


def hold(workspace_id: UUID, operation: Operation) -> None:
    """Keep the operation until the run it waits for is stored."""
    parent_id = operation.run.parent_run_id
    awaited_run_id = operation.run_id if operation.is_update or parent_id is None else parent_id
    files = {
        name: (one.path, one.mime_type, one.size)
        for name, one in operation.content.attachments.items()
    }
    body = _Body(is_update=operation.is_update, run=operation.run, attachments=files)
    held = DeferredOperation(
        workspace_id=workspace_id,
        awaited_run_id=awaited_run_id,
        run_id=operation.run_id,
        body=msgspec.json.encode(body),
    )
    DeferredOperation.objects.for_workspace(workspace_id).bulk_create([held])


def released(workspace_id: UUID, run_ids: Collection[UUID]) -> list[Operation]:
    """Take out the operations that waited for these runs, in the order in which they came."""
    held = DeferredOperation.objects.for_workspace(workspace_id).filter(awaited_run_id__in=run_ids)
    found = list(held.select_for_update(skip_locked=True).order_by("created_at", "pk"))
    DeferredOperation.objects.for_workspace(workspace_id).filter(
        pk__in=[one.pk for one in found]
    ).delete()
    return [read_held(one) for one in found]


def read_held(held: DeferredOperation) -> Operation:
    body = _decoder.decode(bytes(held.body))
    files = {
        name: Attachment(name=name, path=path, mime_type=mime_type, size=size)
        for name, (path, mime_type, size) in body.attachments.items()
    }
    return read_operation(body.run, is_update=body.is_update, attachments=files)


def delete_awaiting(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Delete the operations that await removed runs."""
    deferred = DeferredOperation.objects.for_workspace(workspace_id)
    deferred.filter(awaited_run_id__in=run_ids).delete()
