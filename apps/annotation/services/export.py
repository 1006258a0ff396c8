"""Export of archived items as CSV, with the feedback on the keys of the rubric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.services.item_runs import load_runs
from apps.core.json import dumps_text
from apps.datasets.services.csv_cells import protect_text
from apps.feedback.models import Feedback
from apps.organizations.models import User
from apps.trace_store import Payload, RunDetail

_BATCH_SIZE = 50
_COLUMNS = ("run_id", "run_name", "start_time", "added_at", "completed_at", "inputs", "outputs")
_FIELDS = ("score", "value", "comment")
_TO_QUOTE = re.compile(rb'[",\r\n]')


def export_csv(
    queue: AnnotationQueue,
    *,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    by_reviewer: bool = False,
) -> Iterator[bytes]:
    """Yield a row for each item archived between the times, oldest first.

    For each key of the rubric there are score, value and comment of the last feedback. With
    `by_reviewer`, an item has a row for each reviewer, with the reviewer's feedback.
    """
    keys = [item["feedback_key"] for item in queue.rubric_items]
    header = [*_COLUMNS, *(_cell(f"{key}.{name}") for key in keys for name in _FIELDS)]
    yield _line(["reviewer", *header] if by_reviewer else header)
    items = QueueItem.objects.for_workspace(queue.workspace_id).filter(queue=queue).archived()
    if start_time is not None:
        items = items.filter(completed_at__gt=start_time)
    if end_time is not None:
        items = items.filter(completed_at__lt=end_time)
    ids = list(items.order_by("completed_at", "pk").values_list("pk", flat=True))
    for start in range(0, len(ids), _BATCH_SIZE):
        by_id = items.in_bulk(ids[start : start + _BATCH_SIZE])
        batch = [by_id[pk] for pk in ids[start : start + _BATCH_SIZE] if pk in by_id]
        for row in _batch_rows(queue.workspace_id, batch, keys, by_reviewer=by_reviewer):
            yield _line(row)


def _batch_rows(
    workspace_id: UUID, items: Sequence[QueueItem], keys: Sequence[str], *, by_reviewer: bool
) -> Iterator[list[str | bytes]]:
    runs = load_runs(workspace_id, items, (Payload.INPUTS, Payload.OUTPUTS))
    run_ids = [item.run_id for item in items]
    given = _load_last_feedback(workspace_id, run_ids, keys, by_reviewer=by_reviewer)
    reviewers = _load_reviewers(workspace_id, items) if by_reviewer else {}
    names = _load_names(reviewers)
    for item in items:
        run = runs.get(item.pk)
        if run is None:
            continue
        cells = _item_cells(item, run)
        for reviewer_id in reviewers.get(item.pk, []) if by_reviewer else [None]:
            entries = [given.get((item.run_id, key, reviewer_id)) for key in keys]
            scores = [_cell(getattr(entry, name, None)) for entry in entries for name in _FIELDS]
            first_cells = [names.get(reviewer_id, str(reviewer_id))] if by_reviewer else []
            yield [*first_cells, *cells, *scores]


def _load_last_feedback(
    workspace_id: UUID, run_ids: Sequence[UUID], keys: Sequence[str], *, by_reviewer: bool
) -> dict[tuple[UUID | None, str, UUID | None], Feedback]:
    """Return the last feedback by run, key and, with `by_reviewer`, user, else None."""
    rows = Feedback.objects.for_workspace(workspace_id).filter(run_id__in=run_ids, key__in=keys)
    owner = ["run_id", "key", "user_id"] if by_reviewer else ["run_id", "key"]
    last = rows.order_by(*owner, "-created_at", "-pk").distinct(*owner)
    return {
        (entry.run_id, entry.key, entry.user_id if by_reviewer else None): entry for entry in last
    }


def _item_cells(item: QueueItem, run: RunDetail) -> list[str | bytes]:
    times = (item.start_time, item.added_at, item.completed_at)
    return [
        str(item.run_id),
        _cell(run.row.shown_name),
        *("" if time is None else time.isoformat() for time in times),
        *(run.json(payload) or b"" for payload in (Payload.INPUTS, Payload.OUTPUTS)),
    ]


def _load_reviewers(workspace_id: UUID, items: Sequence[QueueItem]) -> dict[UUID, list[UUID]]:
    reviews = ItemReview.objects.for_workspace(workspace_id).filter(item__in=items).completed()
    reviewers: dict[UUID, list[UUID]] = {}
    for item_id, reviewer_id in reviews.order_by("completed_at", "pk").values_list(
        "item_id", "reviewer_id"
    ):
        reviewers.setdefault(item_id, []).append(reviewer_id)
    return reviewers


def _load_names(reviewers: Mapping[UUID, Sequence[UUID]]) -> dict[UUID | None, str]:
    ids = {reviewer_id for members in reviewers.values() for reviewer_id in members}
    return {user.pk: _cell(user.display_name) for user in User.objects.filter(pk__in=ids)}


def _line(cells: Iterable[str | bytes]) -> bytes:
    """Return a line of CSV. The `csv` module needs ten times the memory of a long cell."""
    return b",".join(map(_quoted, cells)) + b"\r\n"


def _quoted(cell: str | bytes) -> bytes:
    text = cell.encode() if isinstance(cell, str) else cell
    if _TO_QUOTE.search(text) is None:
        return text
    return b'"%b"' % text.replace(b'"', b'""')


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return protect_text(value) if isinstance(value, str) else dumps_text(value)
