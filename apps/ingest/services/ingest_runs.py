"""From what a request says to runs that are stored when this returns.

One list of operations, merged per run, written by one statement per table and batch, in one
transaction. What cannot be placed yet is held and placed when what it waits for comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, OperationalError, transaction

from apps.core import metrics
from apps.feedback.services.feedback import store_feedback
from apps.ingest import attachments, errors
from apps.ingest.decoders import Refused, Request, Said
from apps.ingest.ingest_log import Count, Touched, append
from apps.ingest.models import DeferredOperation
from apps.ingest.operations import MisplacedRun, Operation, read_operation
from apps.ingest.services import deferred_operations
from apps.ingest.services.ingest_log import count_refusals
from apps.ingest.services.project_resolution import Destinations
from apps.ingest.wire import Refusal, moment
from apps.trace_store.dotted_order import EARLIEST, Place, place_below, place_root
from apps.trace_store.pricing.costs import add_costs
from apps.trace_store.store import partitions
from apps.trace_store.store.large_payloads import set_apart
from apps.trace_store.store.locating import Located, locate
from apps.trace_store.store.writing import Key, RunWrite, was_in_vain, write
from apps.tracing.models import TraceTier
from apps.tracing.services.projects import NAME_LENGTH
from apps.tracing.services.retention import upgrade_traces
from apps.usage import meter, quotas
from apps.usage.errors import UsageLimitExceeded


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request."""

    accepted: int
    refused: Sequence[Refused]

    def as_json(self) -> dict[str, object]:
        if not self.refused:
            return {"message": "accepted"}
        return {
            "message": f"{self.accepted} accepted, {len(self.refused)} refused",
            "errors": [one.as_json() for one in self.refused],
        }


def ingest(workspace_id: UUID, request: Request) -> Outcome:
    """Store what the request brings; durable on return, safe to repeat.

    What is refused stands in the outcome with its reason. When nothing at all could be stored it
    raises: `DottedOrderRefused` when ids and dotted orders contradict, else `RunsRefused`. Past a
    cap of its usage a workspace may finish runs and begin none: `UsageLimitExceeded`.
    """
    _check_caps(workspace_id, request)
    refused = list(request.refused)
    operations: list[Operation] = []
    for said in request.operations:
        try:
            operations.append(_read(workspace_id, said))
        except Refusal as refusal:
            refused.append(Refused(said.name, refusal))
    later = _stored(workspace_id, operations, request)
    refused += later
    if refused:
        count_refusals(workspace_id, Counter((one.project_id, one.why.reason) for one in refused))
    accepted = len(operations) + len(request.feedback) - len(later)
    meter.add(workspace_id, size=request.size)
    metrics.ingested_runs.labels(request.wire).inc(accepted)
    metrics.ingested_bytes.labels(request.wire).inc(request.size)
    if refused and not accepted:
        _raise(refused)
    return Outcome(accepted, refused)


def _check_caps(workspace_id: UUID, request: Request) -> None:
    new = sum(not said.is_update for said in request.operations)
    if not new:
        return
    try:
        quotas.check(workspace_id)
    except UsageLimitExceeded as error:
        count_refusals(workspace_id, Counter({(None, error.code): new}))
        metrics.refused_ingest.labels(error.code).inc()
        raise


def _read(workspace_id: UUID, said: Said) -> Operation:
    run = said.run
    if run.session_name is not None and len(run.session_name) > NAME_LENGTH:
        raise Refusal(f"`session_name` may have {NAME_LENGTH} characters.", "bad_name")
    price = partial(add_costs, workspace_id)
    operation = read_operation(run, is_update=said.is_update, price=price)
    for file in said.files:
        kept = attachments.store(workspace_id, operation.run_id, file)
        operation.content.attachments = {**operation.content.attachments, kept.name: kept}
    return _with_large_apart(workspace_id, operation)


def _with_large_apart(workspace_id: UUID, operation: Operation) -> Operation:
    """The operation, its large payloads durable in object storage."""
    content = operation.content
    if any(len(value) > settings.LARGE_PAYLOAD_BYTES for value in content.payloads.values()):
        content.payloads = set_apart(workspace_id, operation.run_id, content.payloads)
    return operation


def _stored(workspace_id: UUID, operations: list[Operation], request: Request) -> list[Refused]:
    """Write in one transaction: in the hope that all is new, and where it is not, with care."""
    projects = Destinations(workspace_id)
    # Before the transaction: a project that nobody else sees yet would make others wait.
    projects.look_up(operations)
    placing = request.placing and request.placing(workspace_id, operations)
    for hoping in (True, False):
        try:
            with transaction.atomic():
                batch = _Batch(workspace_id, projects, hoping=hoping)
                if placing is not None:
                    placing(projects.of)
                batch.add(operations)
                batch.write()
                for one in store_feedback(workspace_id, request.feedback):
                    batch.refuse(f"feedback.{one.given.id}", str(one.error), _reason_of(one.error))
                return batch.refused
        except (IntegrityError, OperationalError) as error:
            if not (hoping and was_in_vain(error)):
                raise
    raise AssertionError


def _reason_of(error: Exception) -> str:
    return str(getattr(error, "code", None) or getattr(error, "reason", "invalid"))


def _raise(refused: Sequence[Refused]) -> None:
    first = str(refused[0].why)
    kind = errors.RunsRejected
    if all(isinstance(one.why, MisplacedRun) for one in refused):
        raise errors.DottedOrderRejected(first, [one.as_json() for one in refused])
    raise kind(first, [one.as_json() for one in refused])


@transaction.atomic
def apply_deferred(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Place the operations that wait for these runs, which are there."""
    batch = _Batch(workspace_id, Destinations(workspace_id))
    batch.add_released(run_ids)
    batch.write()


@transaction.atomic
def promote_orphan(orphan: DeferredOperation) -> None:
    """Make a run whose parent did not come the root of a trace of its own."""
    operation = deferred_operations.read_held(orphan)
    if operation.is_update:
        return
    operation = _with_large_apart(orphan.workspace_id, operation)
    operation.run.parent_run_id = None
    orphan.delete()
    projects = Destinations(orphan.workspace_id)
    projects.look_up([operation])
    batch = _Batch(orphan.workspace_id, projects)
    batch.add([operation])
    batch.write()


@dataclass(slots=True)
class _Batch:
    """The operations of one request on their way into the store."""

    workspace_id: UUID
    projects: Destinations
    hoping: bool = False
    refused: list[Refused] = field(default_factory=list)
    writes: dict[Key, RunWrite] = field(default_factory=dict)
    written: set[Key] = field(default_factory=set)
    lasting: set[UUID] = field(default_factory=set)
    """The traces that are to be long-lived."""
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def refuse(self, what: str, why: str, reason: str, project_id: UUID | None = None) -> None:
        self.refused.append(Refused(what, Refusal(why, reason), project_id))

    def add(self, operations: Iterable[Operation]) -> None:
        """Place the operations and gather them by run; hold those that have no place yet."""
        # Beginnings first, so that an update of the same request finds where its run belongs.
        ordered = sorted(operations, key=lambda operation: operation.is_update)
        projects = self.projects
        here: dict[UUID, Located] = {}
        homeless: list[Operation] = []
        for operation in ordered:
            if operation.place is None or not projects.names_one(operation):
                homeless.append(operation)
                continue
            project_id = projects.of(operation)
            if project_id is None:
                self.refuse(str(operation.run_id), "No such project.", "no_project")
                continue
            self._gather(operation, operation.place, project_id)
            here[operation.run_id] = Located(project_id, operation.place)
        if homeless:
            self._find_homes(homeless, here)

    def _find_homes(self, homeless: list[Operation], here: dict[UUID, Located]) -> None:
        """Place operations that do not say where they belong by what is known of their runs."""
        wanted = {one.run_id for one in homeless} | {
            one.run.parent_run_id for one in homeless if one.run.parent_run_id is not None
        }
        known = locate(self.workspace_id, wanted - here.keys()) | here
        waiting = homeless
        while waiting:
            still = []
            for operation in waiting:
                located = self._home(operation, known)
                if located is None:
                    still.append(operation)
                    continue
                self._gather(operation, located.place, located.project_id)
                known[operation.run_id] = located
            if len(still) == len(waiting):
                break
            waiting = still
        else:
            return
        for operation in waiting:
            self._hold(operation)

    def _home(self, operation: Operation, known: dict[UUID, Located]) -> Located | None:
        run, projects = operation.run, self.projects
        project_id = projects.of(operation)
        own = known.get(operation.run_id)
        if own is not None:
            named = project_id if projects.names_one(operation) else None
            return Located(named or own.project_id, operation.place or own.place)
        if operation.is_update or project_id is None:
            return None
        if operation.place is not None:  # names no project, and nobody knows better
            return Located(project_id, operation.place)
        start_time = moment(run.start_time, "start_time") or self.received_at
        if run.parent_run_id is None:
            return Located(project_id, place_root(operation.run_id, start_time))
        parent = known.get(run.parent_run_id)
        if parent is None:
            return None
        place = place_below(
            parent.place.dotted_order,
            parent_run_id=run.parent_run_id,
            run_id=operation.run_id,
            start_time=start_time,
        )
        named = project_id if projects.names_one(operation) else parent.project_id
        return Located(named, place)

    def _gather(self, operation: Operation, place: Place, project_id: UUID) -> None:
        if place.placed_at > partitions.latest_placement(self.received_at):
            when = f"{place.placed_at:%Y-%m-%d %H:%M}"
            why = f"The run starts in the future, at {when} UTC."
            self.refuse(str(operation.run_id), why, "in_the_future", project_id)
            return
        if place.placed_at < EARLIEST:
            why = f"The run starts before {EARLIEST:%Y}."
            self.refuse(str(operation.run_id), why, "in_the_past", project_id)
            return
        fixed = {
            "workspace_id": self.workspace_id,
            "id": operation.run_id,
            "project_id": project_id,
            "placed_at": place.placed_at,
            "trace_id": place.trace_id,
            "parent_run_id": place.parent_run_id,
            "dotted_order": place.dotted_order,
            "received_at": self.received_at,
        }
        if operation.run.trace_tier == TraceTier.LONG:
            self.lasting.add(place.trace_id)
        key = (operation.run_id, project_id, place.placed_at)
        write_ = self.writes.setdefault(key, RunWrite(fixed))
        content = operation.content
        if operation.is_update:
            write_.updated = content if write_.updated is None else content.over(write_.updated)
        else:
            # Of two beginnings the first stands, and the second fills its gaps.
            write_.begun = content if write_.begun is None else write_.begun.over(content)

    def _hold(self, operation: Operation) -> None:
        deferred_operations.hold(self.workspace_id, operation)

    def write(self) -> None:
        """Write what was gathered, then what waited for it, until nothing more is set free."""
        while self.writes:
            writes, self.writes = self.writes, {}
            fresh = write(list(writes.values()), hoping=self.hoping) - self.written
            self.written |= writes.keys()
            lasting, self.lasting = self.lasting, set()
            upgrade_traces(self.workspace_id, lasting)
            if self._append(writes, fresh):
                self.add_released([run_id for run_id, _, _ in writes])

    def add_released(self, run_ids: Collection[UUID]) -> None:
        """Take up what waited for these runs; they are there now, so there is nothing to hope."""
        operations = deferred_operations.released(self.workspace_id, run_ids)
        if operations:
            self.hoping = False
            self.projects.look_up(operations)
            self.add(_with_large_apart(self.workspace_id, one) for one in operations)

    def _append(self, writes: dict[Key, RunWrite], fresh: set[Key]) -> bool:
        """Append to the ledger: in the same transaction, so it tells neither more nor less."""
        counts: dict[UUID, Count] = {}
        touched = []
        for key, one in writes.items():
            run_id, project_id, placed_at = key
            count = counts.setdefault(project_id, Count(placed_at))
            is_root = one.fixed["parent_run_id"] is None
            count.add(placed_at, is_fresh=key in fresh, is_root=is_root)
            touched.append(Touched(run_id, project_id, one.fixed["trace_id"], placed_at))
        return append(self.workspace_id, self.received_at, counts, touched)
