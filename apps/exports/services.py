"""Asking for exports, stopping them, and where they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.exports import errors, tasks
from apps.exports.errors import NotWritten
from apps.exports.models import BulkExport, Destination, ExportPart, Status
from apps.exports.writers import try_out
from apps.organizations.models import Workspace

MOST_DAYS = 3700


def create_destination(
    *, destination: Destination, credentials: dict[str, str] | None
) -> Destination:
    """Keep the destination once a test file could be written there; else `DestinationRefused`."""
    destination.set_credentials(credentials)
    _try(destination)
    with transaction.atomic():
        destination.save(force_insert=True)
        _record(Action.EXPORT_DESTINATION_CREATED, destination)
    return destination


def update_destination(
    *, destination: Destination, name: str | None, credentials: dict[str, str] | None
) -> Destination:
    """Rename it or exchange its credentials, which are tried first."""
    if name is not None:
        destination.name = name
    if credentials is not None:
        destination.set_credentials(credentials)
        _try(destination)
    with transaction.atomic():
        destination.save()
        _record(Action.EXPORT_DESTINATION_UPDATED, destination)
    return destination


def _record(action: Action, destination: Destination) -> None:
    record(
        action,
        Target("export_destination", destination.pk, destination.name),
        after={"display_name": destination.name, **destination.config},
        workspace_id=destination.workspace_id,
    )


def _try(destination: Destination) -> None:
    try:
        try_out(destination)
    except NotWritten as error:
        raise errors.DestinationRefused(f"A test object could not be written: {error}") from None


@transaction.atomic
def create_export(*, export: BulkExport) -> BulkExport:
    """Keep the export, a day a part, and begin; a schedule begins with its first window."""
    if export.is_schedule:
        export.next_window_at = export.start_time
        export.status = Status.RUNNING
    export.save(force_insert=True)
    record(
        Action.EXPORT_CREATED,
        Target("export", export.pk, export.destination.name),
        after={
            "session_id": export.project_id,
            "start_time": export.start_time,
            "end_time": export.end_time,
            "interval_hours": export.interval_hours,
        },
        workspace_id=export.workspace_id,
    )
    if export.end_time is not None:
        _cut(export, export.end_time)
    transaction.on_commit(tasks.go_on.delay, robust=True)
    return export


def _cut(export: BulkExport, until: datetime) -> None:
    ExportPart.objects.for_workspace(export.workspace_id).bulk_create(
        ExportPart(workspace_id=export.workspace_id, export=export, start_time=begin, end_time=end)
        for begin, end in days(export.start_time, until)
    )


def days(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The span cut at midnights, UTC."""
    while begin < end:
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield begin, min(midnight, end)
        begin = min(midnight, end)


@transaction.atomic
def cancel(*, export: BulkExport) -> BulkExport:
    """Stop the export after what is being written now; `ExportOver` when it has ended."""
    exports = BulkExport.objects.for_workspace(export.workspace_id)
    export = exports.select_for_update(no_key=True).get(pk=export.pk)
    if export.finished_at is not None:
        if export.status == Status.CANCELLED:
            return export
        raise errors.ExportOver
    now = timezone.now()
    end(export, Status.CANCELLED, now)
    ExportPart.objects.for_workspace(export.workspace_id).filter(export=export).unfinished().update(
        status=Status.CANCELLED, finished_at=now, busy_until=None, updated_at=now
    )
    return export


def cancel_all(workspace: Workspace) -> None:
    """The workspace is deleted: nothing more is exported from it."""
    exports = BulkExport.objects.for_workspace(workspace).filter(finished_at=None)
    for export in exports.order_by("pk"):
        cancel(export=export)


def end(export: BulkExport, status: Status, now: datetime) -> None:
    """Say how the export ended; a schedule makes no more of them."""
    export.status, export.finished_at, export.next_window_at = status, now, None
    export.save(update_fields=["status", "finished_at", "next_window_at", "updated_at"])


WAIT_FOR_LATE = timedelta(minutes=10)
"""Runs of a window may still arrive so long after it."""


def spawn_due(now: datetime | None = None) -> int:
    """Make the exports of schedules whose window is over; how many. Safe to run twice."""
    now = now or timezone.now()
    schedules = BulkExport.objects.across_workspaces(reason="schedules are everybody's")
    made = 0
    for pk in schedules.scheduled().filter(next_window_at__lt=now).values_list("pk", flat=True):
        with transaction.atomic():
            schedule = (
                schedules.scheduled()
                .select_for_update(skip_locked=True, no_key=True)
                .filter(pk=pk)
                .first()
            )
            if schedule is not None:
                made += _spawn(schedule, now)
    return made


_AT_ONCE = 50


def _spawn(schedule: BulkExport, now: datetime) -> int:
    made = 0
    span = timedelta(hours=schedule.interval_hours or 1)
    begin = schedule.next_window_at
    while begin is not None and begin + span + WAIT_FOR_LATE <= now and made < _AT_ONCE:
        create_export(
            export=BulkExport(
                workspace_id=schedule.workspace_id,
                destination_id=schedule.destination_id,
                project_id=schedule.project_id,
                source=schedule,
                start_time=begin,
                end_time=begin + span,
                filter=schedule.filter,
                fields=schedule.fields,
                compression=schedule.compression,
                format_version=schedule.format_version,
            )
        )
        begin += span
        made += 1
    schedule.next_window_at = begin
    schedule.save(update_fields=["next_window_at", "updated_at"])
    return made


def progress(exports: Sequence[BulkExport]) -> Mapping[Any, tuple[int, int, int]]:
    """Of each export: parts that have ended, parts, and runs written."""
    found: dict[Any, tuple[int, int, int]] = {}
    for export in exports:
        found[export.pk] = (0, 0, 0)
    if not exports:
        return found
    parts = ExportPart.objects.for_workspace(exports[0].workspace_id)
    rows = parts.filter(export__in=[export.pk for export in exports])
    for export_id, finished_at, written in rows.values_list(
        "export_id", "finished_at", "rows_written"
    ):
        done, count, total = found[export_id]
        found[export_id] = done + (finished_at is not None), count + 1, total + written
    return found
