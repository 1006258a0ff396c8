"""Stores the operations of a request: durable on return, safe to repeat.

Operations are parsed, grouped by run and written in one transaction with one statement per table.
An operation whose position is unknown is deferred until the run that it awaits is stored.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from django.db import transaction

from apps.core import object_storage
from apps.core.observability import metrics
from apps.feedback.services.feedback import store_feedback
from apps.ingest import errors
from apps.ingest.decoders import IngestRequest
from apps.ingest.models import DeferredOperation
from apps.ingest.operations import (
    AttachmentFile,
    DottedOrderContradiction,
    RejectedItem,
    RunOperation,
    parse_timestamp,
)
from apps.ingest.run_content import parse_operation
from apps.ingest.services import deferred_operations, ingest_log, unread_usage
from apps.ingest.services.project_resolution import ProjectResolver
from apps.trace_store import Attachment, Payload, run_store
from apps.trace_store.dotted_order import (
    EARLIEST_START,
    TreePosition,
    child_position,
    is_far_apart,
    latest_start_time,
    root_position,
)
from apps.trace_store.errors import WriteConflict
from apps.trace_store.media import extract_media
from apps.trace_store.pricing.costs import add_costs
from apps.trace_store.run_writes import RunWrite
from apps.trace_store.types import RunLocation
from apps.tracing.models import TraceTier
from apps.tracing.services.projects import MAX_NAME_LENGTH
from apps.tracing.services.retention import upgrade_traces
from apps.usage import meter, quotas
from apps.usage.quotas import UsageLimitExceeded

MAX_ATTACHMENT_NAME_LENGTH = 500
MAX_MIME_TYPE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The number of accepted items, and the rejected items."""

    accepted: int
    rejected: Sequence[RejectedItem]

    def as_json(self) -> dict[str, object]:
        if not self.rejected:
            return {"message": "accepted"}
        return {
            "message": f"{self.accepted} accepted, {len(self.rejected)} refused",
            "errors": [error.as_json() for error in self.rejected],
        }


def ingest(workspace_id: UUID, request: IngestRequest) -> IngestResult:
    """Store the request and return the result with its rejected items.

    Raises if every item is rejected: `DottedOrderRejected` if all dotted orders contradict the
    ids, else `RunsRejected`. Over a usage quota a request with creates raises
    `UsageLimitExceeded`; updates are still accepted.
    """
    _check_quotas(workspace_id, request)
    rejected = list(request.rejected)
    operations: list[RunOperation] = []
    for operation in request.operations:
        try:
            _prepare(workspace_id, operation)
        except RejectedItem as error:
            error.item = operation.label
            rejected.append(error)
        else:
            operations.append(operation)
    rejected_on_write = _store_operations(workspace_id, operations, request)
    rejected += rejected_on_write
    ingest_log.count_rejections(
        workspace_id, Counter((error.project_id, error.reason) for error in rejected)
    )
    accepted = len(operations) + len(request.feedback) - len(rejected_on_write)
    meter.add(workspace_id, size=request.size)
    metrics.ingested_runs.labels(request.protocol).inc(accepted)
    metrics.ingested_bytes.labels(request.protocol).inc(request.size)
    if rejected and not accepted:
        _raise_all_rejected(rejected)
    return IngestResult(accepted, rejected)


def _check_quotas(workspace_id: UUID, request: IngestRequest) -> None:
    creates = sum(not operation.is_update for operation in request.operations)
    if not creates:
        return
    try:
        quotas.check(workspace_id)
    except UsageLimitExceeded as error:
        ingest_log.count_rejections(workspace_id, Counter({(None, error.code): creates}))
        metrics.refused_ingest.labels(error.code).inc()
        raise


def _prepare(workspace_id: UUID, operation: RunOperation) -> None:
    """Parse the operation and put its attachments and large payloads in object storage."""
    name = operation.run.session_name
    if name is not None and len(name) > MAX_NAME_LENGTH:
        raise RejectedItem(
            f"`session_name` may have at most {MAX_NAME_LENGTH} characters.", "bad_name"
        )
    parse_operation(operation, add_costs=partial(add_costs, workspace_id))
    content = operation.content
    for file in operation.files:
        attachment = _store_attachment(workspace_id, operation.run_id, file)
        content.attachments = {**content.attachments, attachment.name: attachment}
    _offload_payloads(workspace_id, operation)


def _store_attachment(workspace_id: UUID, run_id: UUID, file: AttachmentFile) -> Attachment:
    """Put the file in object storage; the path is its hash, so a repeat changes nothing."""
    digest = hashlib.sha256(file.name.encode() + b"\0" + file.content).hexdigest()
    path = f"attachments/{workspace_id}/{run_id}/{digest}"
    object_storage.put(path, file.content)
    return Attachment(
        name=file.name.replace("\x00", "\ufffd")[:MAX_ATTACHMENT_NAME_LENGTH],
        path=path,
        mime_type=file.mime_type.replace("\x00", "\ufffd")[:MAX_MIME_TYPE_LENGTH],
        size=len(file.content),
    )


def _offload_payloads(workspace_id: UUID, operation: RunOperation) -> None:
    """Put large media, and payloads that are still large without them, in object storage."""
    content = operation.content
    for payload in (Payload.INPUTS, Payload.OUTPUTS):
        text, media = extract_media(content.payloads.get(payload, b""))
        if not media:
            continue
        content.payloads = {**content.payloads, payload: text}
        for medium in media:
            file = AttachmentFile(medium.name, medium.mime_type, medium.content)
            attachment = _store_attachment(workspace_id, operation.run_id, file)
            content.attachments = {**content.attachments, attachment.name: attachment}
    content.payloads = run_store.offload_payloads(workspace_id, operation.run_id, content.payloads)


def _store_operations(
    workspace_id: UUID, operations: list[RunOperation], request: IngestRequest
) -> list[RejectedItem]:
    """Write in one transaction: try the insert-only path; on conflict, upsert."""
    projects = ProjectResolver(workspace_id)
    # Before the transaction, because an uncommitted project blocks other requests that name it.
    projects.load(operations)
    for optimistic in (True, False):
        try:
            with run_store.transaction(optimistic=optimistic):
                batch = _Batch(workspace_id, projects, optimistic=optimistic)
                if request.assembler is not None:
                    request.assembler.assign_positions(
                        workspace_id, operations, projects.project_of
                    )
                batch.add(operations)
                batch.write()
                rejected = batch.rejected + _store_feedback(workspace_id, request)
            if batch.unread_usage:
                unread_usage.add(workspace_id, batch.unread_usage)
            return rejected
        except WriteConflict:
            continue
    raise AssertionError  # without `optimistic`, the block raises no conflict


def _store_feedback(workspace_id: UUID, request: IngestRequest) -> list[RejectedItem]:
    return [
        RejectedItem(rejected.detail, rejected.reason, item=f"feedback.{rejected.feedback_id}")
        for rejected in store_feedback(workspace_id, request.feedback)
    ]


def _raise_all_rejected(rejected: Sequence[RejectedItem]) -> None:
    detail, items = str(rejected[0]), [error.as_json() for error in rejected]
    if all(isinstance(error, DottedOrderContradiction) for error in rejected):
        raise errors.DottedOrderRejected(detail, items)
    raise errors.RunsRejected(detail, items)


@transaction.atomic
def apply_deferred(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Store the operations that await these existing runs."""
    batch = _Batch(workspace_id, ProjectResolver(workspace_id))
    batch.add([], awaited=run_ids)
    batch.write()
    batch.count_rejections()


@transaction.atomic
def promote_orphan(row: DeferredOperation) -> None:
    """Store a create whose parent is missing as the root of its own trace.

    A create that was applied meanwhile is left alone.
    """
    deleted, _ = row.delete()
    if not deleted:
        return
    operation = deferred_operations.load_operation(row)
    _offload_payloads(row.workspace_id, operation)
    operation.run.parent_run_id = None
    projects = ProjectResolver(row.workspace_id)
    projects.load([operation])
    batch = _Batch(row.workspace_id, projects)
    batch.add([operation])
    batch.write()
    batch.count_rejections()


@dataclass(slots=True)
class _Batch:
    """The operations of one request, grouped by run for the store."""

    workspace_id: UUID
    projects: ProjectResolver
    optimistic: bool = False
    rejected: list[RejectedItem] = field(default_factory=list)
    writes: dict[tuple[UUID, UUID], RunWrite] = field(default_factory=dict)
    """By id of the run and of its project."""
    unread_usage: list[tuple[UUID, str]] = field(default_factory=list)
    """Project, and the name of a token count of a run that was not read."""
    long_lived_traces: set[UUID] = field(default_factory=set)
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def add(self, operations: Iterable[RunOperation], awaited: Collection[UUID] = ()) -> None:
        """Group the operations by run, with earlier ones that await them or the `awaited` runs.

        Operations whose position is unknown are deferred.
        """
        received = list(operations)
        earlier = self._take_awaiting({operation.run_id for operation in received}.union(awaited))
        # Creates first: an update in the same request takes the project and position of its run.
        ordered = sorted([*earlier, *received], key=lambda operation: operation.is_update)
        locations: dict[int, RunLocation] = {}
        unplaced: dict[int, RunOperation] = {}
        for index, operation in enumerate(ordered):
            if operation.position is None or not operation.run.has_project:
                unplaced[index] = operation
                continue
            project_id = self.projects.project_of(operation)
            if project_id is None:
                self._reject_project(operation)
                continue
            locations[index] = RunLocation(project_id, operation.position)
        if unplaced:
            batch_locations = {ordered[index].run_id: item for index, item in locations.items()}
            locations |= self._locate_by_related_runs(unplaced, batch_locations)
        for index, operation in enumerate(ordered):
            if index in locations:
                self._group(operation, locations[index].position, locations[index].project_id)

    def _take_awaiting(self, run_ids: Collection[UUID]) -> list[RunOperation]:
        """Take the deferred operations that await these runs, and those that await them in turn."""
        taken: list[RunOperation] = []
        while run_ids and deferred_operations.is_awaited(self.workspace_id, run_ids):
            operations = deferred_operations.take_awaiting(self.workspace_id, run_ids)
            for operation in operations:
                _offload_payloads(self.workspace_id, operation)
            taken += operations
            run_ids = {operation.run_id for operation in operations}
        if taken:
            self.projects.load(taken)
        return taken

    def _locate_by_related_runs(
        self, unplaced: dict[int, RunOperation], batch_locations: dict[UUID, RunLocation]
    ) -> dict[int, RunLocation]:
        """Locate operations by stored runs or runs of this request; defer the others."""
        run_ids = {item.run_id for item in unplaced.values()} | {
            item.run.parent_run_id
            for item in unplaced.values()
            if item.run.parent_run_id is not None
        }
        by_run = (
            run_store.locate(self.workspace_id, run_ids - batch_locations.keys()) | batch_locations
        )
        locations: dict[int, RunLocation] = {}
        while unplaced:
            located = {
                index: location
                for index, operation in unplaced.items()
                if (location := self._locate(operation, by_run)) is not None
            }
            if not located:
                break
            by_run |= {unplaced[index].run_id: location for index, location in located.items()}
            locations |= located
            unplaced = {key: item for key, item in unplaced.items() if key not in located}
        for operation in unplaced.values():
            if not operation.is_update and self.projects.project_of(operation) is None:
                self._reject_project(operation)
            else:
                deferred_operations.defer_operation(self.workspace_id, operation)
        return locations

    def _locate(
        self, operation: RunOperation, locations: dict[UUID, RunLocation]
    ) -> RunLocation | None:
        """The project and position of the operation; None if it awaits another run."""
        run = operation.run
        project_id = self.projects.project_of(operation)
        stored = locations.get(operation.run_id)
        if stored is not None:
            named_project_id = project_id if run.has_project else None
            return RunLocation(
                named_project_id or stored.project_id, operation.position or stored.position
            )
        if operation.is_update or project_id is None:
            return None
        if operation.position is not None:
            return RunLocation(project_id, operation.position)
        start_time = parse_timestamp(run.start_time, "start_time") or self.received_at
        if run.parent_run_id is None:
            return RunLocation(project_id, root_position(operation.run_id, start_time))
        parent = locations.get(run.parent_run_id)
        if parent is None:
            return None
        position = child_position(
            parent.position.dotted_order,
            parent_run_id=run.parent_run_id,
            run_id=operation.run_id,
            start_time=start_time,
        )
        return RunLocation(project_id if run.has_project else parent.project_id, position)

    def _group(self, operation: RunOperation, position: TreePosition, project_id: UUID) -> None:
        """Merge the operation into the write of its run; reject implausible start times."""
        if position.partition_time > latest_start_time(self.received_at):
            detail = (
                f"The run starts in the future, at {position.partition_time:%Y-%m-%d %H:%M} UTC."
            )
            self._reject(operation, detail, "in_the_future", project_id)
            return
        if position.partition_time < EARLIEST_START:
            detail = f"The run starts before {EARLIEST_START:%Y}."
            self._reject(operation, detail, "in_the_past", project_id)
            return
        start_time = operation.content.columns.get("start_time")
        if start_time is not None and is_far_apart(start_time, position.partition_time):
            detail = (
                f"`start_time` is {start_time:%Y-%m-%d %H:%M} UTC, more than a day from the time"
                f" in `dotted_order`, {position.partition_time:%Y-%m-%d %H:%M} UTC."
            )
            self._reject(operation, detail, "misplaced", project_id)
            return
        identity = {
            "workspace_id": self.workspace_id,
            "id": operation.run_id,
            "project_id": project_id,
            "partition_time": position.partition_time,
            "trace_id": position.trace_id,
            "parent_run_id": position.parent_run_id,
            "dotted_order": position.dotted_order,
            "received_at": self.received_at,
        }
        if operation.run.trace_tier == TraceTier.LONG:
            self.long_lived_traces.add(position.trace_id)
        self.unread_usage += [(project_id, name) for name in operation.unread_usage]
        run_write = self.writes.setdefault((operation.run_id, project_id), RunWrite(identity))
        run_write.add(operation.content, is_update=operation.is_update)
        if identity["partition_time"] != run_write.identity["partition_time"]:
            run_write.move(identity, operation.content)

    def _reject(
        self, operation: RunOperation, detail: str, reason: str, project_id: UUID | None = None
    ) -> None:
        error = RejectedItem(detail, reason, item=str(operation.run_id), project_id=project_id)
        self.rejected.append(error)

    def _reject_project(self, operation: RunOperation) -> None:
        field_name = "session_id" if operation.run.session_id is not None else "address"
        self._reject(operation, f"No project has this `{field_name}`.", "no_project")

    def write(self) -> None:
        """Write the grouped runs."""
        if not self.writes:
            return
        run_store.write(self.workspace_id, list(self.writes.values()), optimistic=self.optimistic)
        upgrade_traces(self.workspace_id, self.long_lived_traces)

    def count_rejections(self) -> None:
        """Count the rejected operations in the ingest log."""
        reasons = Counter((error.project_id, error.reason) for error in self.rejected)
        ingest_log.count_rejections(self.workspace_id, reasons)
