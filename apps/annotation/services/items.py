"""Adding runs to queues, and removing and moving items."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from apps.annotation import errors
from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.services.queue_lock import lock_queue
from apps.core.tenancy import check_row_limit
from apps.datasets.errors import ExperimentNotFound
from apps.trace_store import NO_PAYLOADS, RunQuery, RunRow, run_store
from apps.tracing.models import Project

MAX_ITEMS = 50_000
"""Of a queue."""
_BATCH_SIZE = 500
_START_TOLERANCE = timedelta(seconds=1)
REMOVAL_STATEMENTS = (
    """
DELETE FROM annotation_queueitem i USING {runs} r
WHERE i.workspace_id = r.workspace_id AND i.run_id = r.id AND i.project_id = r.project_id
""",
    # A statement of its own, which sees the reviews that were written until the items were locked.
    """
DELETE FROM annotation_itemreview v USING {runs} r
WHERE v.workspace_id = r.workspace_id AND v.run_id = r.id AND v.project_id = r.project_id
""",
)
"""Delete the items of removed runs, see `apps.trace_store.hooks.register_removal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReference:
    """A run to add; project and start time make the search for it shorter."""

    run_id: UUID
    project_id: UUID | None = None
    start_time: datetime | None = None
    source_proposed_example_id: UUID | None = None


def get_item(queue: AnnotationQueue, item_id: UUID) -> QueueItem:
    """Return the item with this id, or that of the run with this id; raises `QueueItemNotFound`."""
    items = QueueItem.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    item = items.filter(Q(pk=item_id) | Q(run_id=item_id)).select_related("queue").first()
    if item is None:
        raise errors.QueueItemNotFound
    return item


def find_item(workspace_id: UUID, item_id: UUID) -> QueueItem:
    """Return the item of any queue of the workspace; raises `QueueItemNotFound`."""
    items = QueueItem.objects.for_workspace(workspace_id).select_related("queue")
    item = items.filter(pk=item_id).first()
    if item is None:
        raise errors.QueueItemNotFound
    return item


@transaction.atomic
def add_runs(
    *,
    queue: AnnotationQueue,
    references: Sequence[RunReference],
    extend_trace_retention: bool = False,
) -> list[QueueItem]:
    """Put runs in the queue and return their items, new and existing, in the order given.

    All or nothing: an unknown run fails the call with `RunsNotFound`. Safe to repeat: a run is in
    a queue once. `extend_trace_retention` keeps the traces as long as those with feedback.
    """
    by_id = {reference.run_id: reference for reference in references}
    rows = _fetch_rows(queue.workspace_id, list(by_id.values()))
    missing_ids = by_id.keys() - rows.keys()
    if missing_ids:
        raise errors.RunsNotFound(
            errors=[{"run_id": str(run_id)} for run_id in sorted(missing_ids)]
        )
    proposed_ids = {
        run_id: reference.source_proposed_example_id for run_id, reference in by_id.items()
    }
    items = add_rows(
        queue=queue, rows=[rows[run_id] for run_id in by_id], proposed_ids=proposed_ids
    )
    if extend_trace_retention:
        run_store.retain_traces(queue.workspace_id, {row.trace_id for row in rows.values()})
    return items


def _fetch_rows(workspace_id: UUID, references: Sequence[RunReference]) -> dict[UUID, RunRow]:
    """Return the runs by id; of several projects with a run of that id, the one received last."""
    plain_ids = [item.run_id for item in references if item.project_id is None]
    matches: list[RunRow] = []
    if plain_ids:
        matches += run_store.fetch_rows(workspace_id, plain_ids)
    located = [item for item in references if item.project_id is not None]
    for start in range(0, len(located), _BATCH_SIZE):
        matches += _fetch_located(workspace_id, located[start : start + _BATCH_SIZE])
    return {row.id: row for row in sorted(matches, key=lambda row: row.received_at)}


def _fetch_located(workspace_id: UUID, references: Sequence[RunReference]) -> list[RunRow]:
    times = [item.start_time for item in references if item.start_time is not None]
    has_times = len(times) == len(references)
    query = RunQuery(
        run_ids=[item.run_id for item in references],
        project_ids=list({item.project_id for item in references if item.project_id is not None}),
        started_from=min(times) - _START_TOLERANCE if has_times else None,
        started_until=max(times) + _START_TOLERANCE if has_times else None,
    )
    page = run_store.query(workspace_id, query, limit=len(references) * 2, payloads=NO_PAYLOADS)
    expected = {(item.run_id, item.project_id) for item in references}
    return [run.row for run in page.runs if (run.row.id, run.row.project_id) in expected]


@transaction.atomic
def add_rows(
    *,
    queue: AnnotationQueue,
    rows: Sequence[RunRow],
    proposed_ids: Mapping[UUID, UUID | None] | None = None,
) -> list[QueueItem]:
    """Put stored runs in the queue and return their items in the order given."""
    workspace_id = queue.workspace_id
    lock_queue(queue)
    proposed_ids = proposed_ids or {}
    items = QueueItem.objects.for_workspace(workspace_id)
    items.bulk_create(
        [
            QueueItem(
                workspace_id=workspace_id,
                queue=queue,
                project_id=row.project_id,
                run_id=row.id,
                trace_id=row.trace_id,
                start_time=row.start_time,
                source_proposed_example_id=proposed_ids.get(row.id),
            )
            for row in rows
        ],
        ignore_conflicts=True,
        batch_size=_BATCH_SIZE,
    )
    items = items.filter(queue=queue)
    check_row_limit(items, MAX_ITEMS, "items of an annotation queue")
    by_run = {item.run_id: item for item in items.filter(run_id__in=[row.id for row in rows])}
    return [by_run[row.id] for row in rows if row.id in by_run]


@transaction.atomic
def add_experiments(
    *,
    queue: AnnotationQueue,
    experiment_ids: Collection[UUID],
    extend_trace_retention: bool = False,
) -> int:
    """Put the root runs of the experiments in the queue; return their number.

    Raises `ExperimentNotFound` for a project that is no experiment, and `TooMany`.
    """
    workspace_id = queue.workspace_id
    projects = Project.objects.for_workspace(workspace_id).present().experiments()
    existing = set(projects.filter(pk__in=experiment_ids).values_list("pk", flat=True))
    missing = [str(item) for item in experiment_ids if item not in existing]
    if missing:
        raise ExperimentNotFound(f"There is no experiment {missing[0]}.")
    query = RunQuery(project_ids=sorted(existing), is_root=True, oldest_first=True)
    cursor: str | None = None
    count = 0
    while True:
        page = run_store.query(
            workspace_id, query, limit=_BATCH_SIZE, cursor=cursor, payloads=NO_PAYLOADS
        )
        rows = [run.row for run in page.runs]
        add_rows(queue=queue, rows=rows)
        if extend_trace_retention and rows:
            run_store.retain_traces(workspace_id, {row.trace_id for row in rows})
        count += len(rows)
        cursor = page.next_cursor
        if cursor is None:
            return count


@transaction.atomic
def remove_items(
    *,
    queue: AnnotationQueue,
    item_ids: Collection[UUID] | None = None,
    run_ids: Collection[UUID] | None = None,
    excluded_run_ids: Collection[UUID] = (),
) -> int:
    """Remove items with their reviews, by id, by run, or all; return their number.

    Their feedback stays. Unknown ids have no effect.
    """
    lock_queue(queue)
    items = QueueItem.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    if item_ids is not None:
        items = items.filter(pk__in=item_ids)
    if run_ids is not None:
        items = items.filter(run_id__in=run_ids)
    if excluded_run_ids:
        items = items.exclude(run_id__in=excluded_run_ids)
    ids = list(items.order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(ids), _BATCH_SIZE):
        batch = ids[start : start + _BATCH_SIZE]
        # Locked first, so that no review is added to an item that is being removed.
        list(items.filter(pk__in=batch).select_for_update().values_list("pk"))
        ItemReview.objects.for_workspace(queue.workspace_id).filter(item_id__in=batch).delete()
        items.filter(pk__in=batch).delete()
    return len(ids)


@transaction.atomic
def change_item(
    *, item: QueueItem, added_at: datetime | None, last_reviewed_at: datetime | None
) -> QueueItem:
    """Set the times that are given: the place in the queue, and the time of the last review."""
    fields = {"added_at": added_at, "last_reviewed_at": last_reviewed_at}
    changed = {name: value for name, value in fields.items() if value is not None}
    for name, value in changed.items():
        setattr(item, name, value)
    if changed:
        item.save(update_fields=[*changed])
    return item
