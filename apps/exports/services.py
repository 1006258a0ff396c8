"""Create and cancel exports and manage their destinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import check_row_limit
from apps.exports import dispatch, errors
from apps.exports.errors import WriteFailed
from apps.exports.models import BulkExport, Destination, ExportPart, ExportStatus
from apps.exports.writers import test_write
from apps.organizations.models import Workspace

MAX_DAYS = 3700
MAX_DESTINATIONS = 100
MAX_OPEN_EXPORTS = 100
"""Of a workspace; with schedules."""


def create_destination(
    *, destination: Destination, credentials: dict[str, str] | None
) -> Destination:
    """Save the destination after a successful test write, else raise `DestinationRefused`."""
    destination.set_credentials(credentials)
    _check_writable(destination)
    with transaction.atomic():
        destination.save(force_insert=True)
        destinations = Destination.objects.for_workspace(destination.workspace_id)
        check_row_limit(destinations, MAX_DESTINATIONS, "destinations of a workspace")
        _record(Action.EXPORT_DESTINATION_CREATED, destination)
    return destination


def update_destination(
    *, destination: Destination, name: str | None, credentials: dict[str, str] | None
) -> Destination:
    """Change the name or the credentials; new credentials need a successful test write."""
    if name is not None:
        destination.name = name
    if credentials is not None:
        destination.set_credentials(credentials)
        _check_writable(destination)
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


def _check_writable(destination: Destination) -> None:
    try:
        test_write(destination)
    except WriteFailed as error:
        raise errors.DestinationRefused(
            f"A test file could not be written to the destination: {error}"
        ) from None


@transaction.atomic
def create_export(*, export: BulkExport) -> BulkExport:
    """Save and start the export with one part per day; a schedule waits for its first window."""
    if export.is_schedule:
        export.next_window_at = export.start_time
        export.status = ExportStatus.RUNNING
    export.save(force_insert=True)
    exports = BulkExport.objects.for_workspace(export.workspace_id)
    open_exports = exports.filter(status__in=[ExportStatus.CREATED, ExportStatus.RUNNING])
    if export.source_id is None:  # no window of a schedule
        check_row_limit(open_exports, MAX_OPEN_EXPORTS, "unfinished exports of a workspace")
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
        _create_parts(export, export.end_time)
    dispatch.run_exports()
    return export


def _create_parts(export: BulkExport, end_time: datetime) -> None:
    ExportPart.objects.for_workspace(export.workspace_id).bulk_create(
        ExportPart(workspace_id=export.workspace_id, export=export, start_time=begin, end_time=end)
        for begin, end in split_into_days(export.start_time, end_time)
    )


def split_into_days(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Split the time range at UTC midnights."""
    while begin < end:
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield begin, min(midnight, end)
        begin = min(midnight, end)


@transaction.atomic
def cancel(*, export: BulkExport) -> BulkExport:
    """Cancel the export; a file that is being written is completed. Raises `ExportFinished`."""
    exports = BulkExport.objects.for_workspace(export.workspace_id)
    export = exports.select_for_update(no_key=True).get(pk=export.pk)
    if export.finished_at is not None:
        if export.status == ExportStatus.CANCELLED:
            return export
        raise errors.ExportFinished
    now = timezone.now()
    finish(export, ExportStatus.CANCELLED, now)
    ExportPart.objects.for_workspace(export.workspace_id).filter(export=export).unfinished().update(
        status=ExportStatus.CANCELLED, finished_at=now, locked_until=None, updated_at=now
    )
    return export


def cancel_all(workspace: Workspace) -> None:
    """Cancel the exports of a deleted workspace."""
    exports = BulkExport.objects.for_workspace(workspace).filter(finished_at=None)
    for export in exports.order_by("pk"):
        cancel(export=export)


def finish(export: BulkExport, status: ExportStatus, now: datetime) -> None:
    """Set the final status of an export or a schedule."""
    export.status, export.finished_at, export.next_window_at = status, now, None
    export.save(update_fields=["status", "finished_at", "next_window_at", "updated_at"])


LATE_RUNS_DELAY = timedelta(minutes=10)
"""How long a schedule waits after a window, so that late runs are exported."""


def create_due_exports(now: datetime | None = None) -> int:
    """Create the exports of schedules whose window has ended; return their number. Idempotent."""
    now = now or timezone.now()
    schedules = BulkExport.objects.across_workspaces(reason="the scheduler serves all workspaces")
    created = 0
    for pk in schedules.scheduled().filter(next_window_at__lt=now).values_list("pk", flat=True):
        with transaction.atomic():
            schedule = (
                schedules.scheduled()
                .select_for_update(skip_locked=True, no_key=True)
                .filter(pk=pk)
                .first()
            )
            if schedule is not None:
                created += _create_windows(schedule, now)
    return created


_MAX_WINDOWS = 50
"""The maximum number of exports that one call creates for a schedule."""


def _create_windows(schedule: BulkExport, now: datetime) -> int:
    created = 0
    window = timedelta(hours=schedule.interval_hours or 1)
    begin = schedule.next_window_at
    while begin is not None and begin + window + LATE_RUNS_DELAY <= now and created < _MAX_WINDOWS:
        create_export(
            export=BulkExport(
                workspace_id=schedule.workspace_id,
                destination_id=schedule.destination_id,
                project_id=schedule.project_id,
                source=schedule,
                start_time=begin,
                end_time=begin + window,
                filter=schedule.filter,
                fields=schedule.fields,
                compression=schedule.compression,
                format_version=schedule.format_version,
            )
        )
        begin += window
        created += 1
    schedule.next_window_at = begin
    schedule.save(update_fields=["next_window_at", "updated_at"])
    return created


def count_progress(exports: Sequence[BulkExport]) -> Mapping[Any, tuple[int, int, int]]:
    """Return finished parts, all parts and written runs by export id."""
    progress: dict[Any, tuple[int, int, int]] = {}
    for export in exports:
        progress[export.pk] = (0, 0, 0)
    if not exports:
        return progress
    parts = ExportPart.objects.for_workspace(exports[0].workspace_id)
    rows = parts.filter(export__in=[export.pk for export in exports])
    for export_id, finished_at, written in rows.values_list(
        "export_id", "finished_at", "rows_written"
    ):
        done, count, total = progress[export_id]
        progress[export_id] = done + (finished_at is not None), count + 1, total + written
    return progress
