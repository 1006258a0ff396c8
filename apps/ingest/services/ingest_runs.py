"""Stores the operations of a request: durable on return, safe to repeat.

Operations are parsed, placed, grouped by run and written in one transaction with one statement per
table. An operation that cannot be placed yet is deferred until the run that it awaits is stored.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, OperationalError, transaction

from apps.core import objects
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
from apps.ingest.services import deferred_operations, ingest_log
from apps.ingest.services.ingest_log import ProjectCount, WrittenRun
from apps.ingest.services.project_resolution import ProjectResolver
from apps.trace_store import Attachment
from apps.trace_store.dotted_order import (
    EARLIEST_START,
    TreePosition,
    child_position,
    root_position,
)
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.payload_storage import offload
from apps.trace_store.postgres.reading.locations import locate_runs
from apps.trace_store.postgres.writing.write_runs import is_conflict, write_runs
from apps.trace_store.pricing.costs import add_costs
from apps.trace_store.run_writes import RunWrite
from apps.trace_store.types import RunKey, RunLocation
from apps.tracing.models import TraceTier
from apps.tracing.services.projects import MAX_NAME_LENGTH
from apps.tracing.services.retention import upgrade_traces
from apps.usage import meter, quotas
from apps.usage.errors import UsageLimitExceeded

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
    rejected_on_write = _store(workspace_id, operations, request)
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
        raise RejectedItem(f"`session_name` may have {MAX_NAME_LENGTH} characters.", "bad_name")
    parse_operation(operation, add_costs=partial(add_costs, workspace_id))
    content = operation.content
    for file in operation.files:
        attachment = _store_attachment(workspace_id, operation.run_id, file)
        content.attachments = {**content.attachments, attachment.name: attachment}
    _offload_large_payloads(workspace_id, operation)


def _store_attachment(workspace_id: UUID, run_id: UUID, file: AttachmentFile) -> Attachment:
    """Put the file in object storage; the path is its hash, so a repeat changes nothing."""
    digest = hashlib.sha256(file.name.encode() + b"\0" + file.content).hexdigest()
    path = f"attachments/{workspace_id}/{run_id}/{digest}"
    objects.put(path, file.content)
    return Attachment(
        name=file.name.replace("\x00", "\ufffd")[:MAX_ATTACHMENT_NAME_LENGTH],
        path=path,
        mime_type=file.mime_type.replace("\x00", "\ufffd")[:MAX_MIME_TYPE_LENGTH],
        size=len(file.content),
    )


def _offload_large_payloads(workspace_id: UUID, operation: RunOperation) -> None:
    content = operation.content
    if any(len(value) > settings.LARGE_PAYLOAD_BYTES for value in content.payloads.values()):
        content.payloads = offload(workspace_id, operation.run_id, content.payloads)


def _store(
    workspace_id: UUID, operations: list[RunOperation], request: IngestRequest
) -> list[RejectedItem]:
    """Write in one transaction: try the insert-only path; on conflict, upsert."""
    projects = ProjectResolver(workspace_id)
    # Before the transaction: an uncommitted project would block requests that name it too.
    projects.load(operations)
    for optimistic in (True, False):
        try:
            with transaction.atomic():
                batch = _Batch(workspace_id, projects, optimistic=optimistic)
                if request.assembler is not None:
                    request.assembler.place(workspace_id, operations, projects.project_of)
                batch.add(operations)
                batch.write()
                return batch.rejected + _store_feedback(workspace_id, request)
        except (IntegrityError, OperationalError) as error:
            if not (optimistic and is_conflict(error)):
                raise
    raise AssertionError


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
    batch.add_deferred(run_ids)
    batch.write()


@transaction.atomic
def promote_orphan(row: DeferredOperation) -> None:
    """Store a create whose parent is missing as the root of its own trace."""
    operation = deferred_operations.load(row)
    if operation.is_update:
        return
    _offload_large_payloads(row.workspace_id, operation)
    operation.run.parent_run_id = None
    row.delete()
    projects = ProjectResolver(row.workspace_id)
    projects.load([operation])
    batch = _Batch(row.workspace_id, projects)
    batch.add([operation])
    batch.write()


@dataclass(slots=True)
class _Batch:
    """The operations of one request, grouped by run for the store."""

    workspace_id: UUID
    projects: ProjectResolver
    optimistic: bool = False
    rejected: list[RejectedItem] = field(default_factory=list)
    writes: dict[RunKey, RunWrite] = field(default_factory=dict)
    written: set[RunKey] = field(default_factory=set)
    long_lived_traces: set[UUID] = field(default_factory=set)
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def add(self, operations: Iterable[RunOperation]) -> None:
        """Place the operations and group them by run; defer those that have no place yet."""
        # Creates first: an update in the same request takes the project and place of its run.
        ordered = sorted(operations, key=lambda operation: operation.is_update)
        placed: dict[UUID, RunLocation] = {}
        unplaced: list[RunOperation] = []
        for operation in ordered:
            if operation.place is None or not operation.run.names_project:
                unplaced.append(operation)
                continue
            project_id = self.projects.project_of(operation)
            if project_id is None:
                self._reject(operation, "No such project.", "no_project")
                continue
            self._group(operation, operation.place, project_id)
            placed[operation.run_id] = RunLocation(project_id, operation.place)
        if unplaced:
            self._place_by_stored_runs(unplaced, placed)

    def _place_by_stored_runs(
        self, unplaced: list[RunOperation], placed: dict[UUID, RunLocation]
    ) -> None:
        """Place the operations relative to runs of the store and of this request."""
        run_ids = {item.run_id for item in unplaced} | {
            item.run.parent_run_id for item in unplaced if item.run.parent_run_id is not None
        }
        known = locate_runs(self.workspace_id, run_ids - placed.keys()) | placed
        while unplaced:
            remaining = []
            for operation in unplaced:
                located = self._locate(operation, known)
                if located is None:
                    remaining.append(operation)
                    continue
                self._group(operation, located.place, located.project_id)
                known[operation.run_id] = located
            if len(remaining) == len(unplaced):
                break
            unplaced = remaining
        for operation in unplaced:
            deferred_operations.defer(self.workspace_id, operation)

    def _locate(
        self, operation: RunOperation, known: dict[UUID, RunLocation]
    ) -> RunLocation | None:
        """The project and place of the operation; None if it awaits another run."""
        run = operation.run
        project_id = self.projects.project_of(operation)
        stored = known.get(operation.run_id)
        if stored is not None:
            named = project_id if run.names_project else None
            return RunLocation(named or stored.project_id, operation.place or stored.place)
        if operation.is_update or project_id is None:
            return None
        if operation.place is not None:
            return RunLocation(project_id, operation.place)
        start_time = parse_timestamp(run.start_time, "start_time") or self.received_at
        if run.parent_run_id is None:
            return RunLocation(project_id, root_position(operation.run_id, start_time))
        parent = known.get(run.parent_run_id)
        if parent is None:
            return None
        place = child_position(
            parent.place.dotted_order,
            parent_run_id=run.parent_run_id,
            run_id=operation.run_id,
            start_time=start_time,
        )
        return RunLocation(project_id if run.names_project else parent.project_id, place)

    def _group(self, operation: RunOperation, place: TreePosition, project_id: UUID) -> None:
        """Merge the operation into the write of its run; reject implausible start times."""
        if place.partition_time > partitions.latest_start_time(self.received_at):
            detail = f"The run starts in the future, at {place.partition_time:%Y-%m-%d %H:%M} UTC."
            self._reject(operation, detail, "in_the_future", project_id)
            return
        if place.partition_time < EARLIEST_START:
            detail = f"The run starts before {EARLIEST_START:%Y}."
            self._reject(operation, detail, "in_the_past", project_id)
            return
        identity = {
            "workspace_id": self.workspace_id,
            "id": operation.run_id,
            "project_id": project_id,
            "partition_time": place.partition_time,
            "trace_id": place.trace_id,
            "parent_run_id": place.parent_run_id,
            "dotted_order": place.dotted_order,
            "received_at": self.received_at,
        }
        if operation.run.trace_tier == TraceTier.LONG:
            self.long_lived_traces.add(place.trace_id)
        key = (operation.run_id, project_id, place.partition_time)
        run_write = self.writes.setdefault(key, RunWrite(identity))
        content = operation.content
        if operation.is_update:
            earlier = run_write.update
            run_write.update = content if earlier is None else content.over(earlier)
        else:
            # The first of two creates has precedence; the second fills its gaps.
            first = run_write.create
            run_write.create = content if first is None else first.over(content)

    def _reject(
        self, operation: RunOperation, detail: str, reason: str, project_id: UUID | None = None
    ) -> None:
        error = RejectedItem(detail, reason, item=str(operation.run_id), project_id=project_id)
        self.rejected.append(error)

    def write(self) -> None:
        """Write the grouped runs, then the deferred operations that await them, repeatedly."""
        while self.writes:
            writes, self.writes = self.writes, {}
            new_keys = write_runs(list(writes.values()), optimistic=self.optimistic) - self.written
            self.written |= writes.keys()
            traces, self.long_lived_traces = self.long_lived_traces, set()
            upgrade_traces(self.workspace_id, traces)
            if self._append_to_log(writes, new_keys):
                self.add_deferred([run_id for run_id, _, _ in writes])

    def add_deferred(self, run_ids: Collection[UUID]) -> None:
        """Add the operations that await these runs; the runs exist, so the write must upsert."""
        operations = deferred_operations.take(self.workspace_id, run_ids)
        if not operations:
            return
        self.optimistic = False
        self.projects.load(operations)
        for operation in operations:
            _offload_large_payloads(self.workspace_id, operation)
        self.add(operations)

    def _append_to_log(self, writes: dict[RunKey, RunWrite], new_keys: set[RunKey]) -> bool:
        """Count the runs in their transaction; True if an operation awaits one of them."""
        counts: dict[UUID, ProjectCount] = {}
        runs = []
        for key, run_write in writes.items():
            run_id, project_id, partition_time = key
            is_root = run_write.identity["parent_run_id"] is None
            count = counts.setdefault(project_id, ProjectCount(partition_time))
            count.add(partition_time, is_new=key in new_keys, is_root=is_root)
            runs.append(
                WrittenRun(run_id, project_id, run_write.identity["trace_id"], partition_time)
            )
        return ingest_log.append(self.workspace_id, self.received_at, counts, runs)
