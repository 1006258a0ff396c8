"""Writes the parts of exports file by file.

The worker writes a file and then records it in the part's row, with the cursor after the last run.
If the worker dies between these steps, the next worker starts at the recorded cursor and replaces
the file of the same name, so that no run is missing or duplicated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core import errors as core_errors
from apps.exports import services
from apps.exports.errors import WriteFailed
from apps.exports.models import BulkExport, ExportPart, ExportStatus
from apps.exports.parquet import FEEDBACK, FIELDS, required_payloads, to_parquet
from apps.exports.writers import Writer, create_writer, write
from apps.feedback.services import score_stats
from apps.trace_store import RunDetail, RunQuery, cursors, filters, run_store

logger = logging.getLogger(__name__)

PAGE_SIZE = 500
MAX_FILE_ROWS = 20_000
MAX_FILE_BYTES = 64 * 1024 * 1024
LEASE = timedelta(minutes=15)
TIMEOUT = timedelta(hours=72)
MAX_ATTEMPTS = 20
_MAX_PROBLEMS = 5
MAX_CONCURRENT = 2
"""Parts of different organizations; the other threads of the worker are for other tasks."""
_slots = threading.BoundedSemaphore(MAX_CONCURRENT)
_running: set[UUID] = set()
"""The organizations whose part this process writes."""
_claiming = threading.Lock()


def run_slice(*, seconds: float) -> bool:
    """Write files for about `seconds`; return whether unfinished parts may remain.

    At the limit of concurrent slices nothing is written: those continue.
    """
    if not _slots.acquire(blocking=False):
        return False
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            with _claimed() as part:
                if part is None:
                    return False
                _run_part(part, deadline)
    finally:
        _slots.release()
    return True


@contextmanager
def _claimed() -> Iterator[ExportPart | None]:
    """Lease a part of an organization of which this process writes no other."""
    with _claiming:
        part = _claim(timezone.now())
        if part is not None:
            _running.add(part.workspace.organization_id)
    try:
        yield part
    finally:
        if part is not None:
            with _claiming:
                _running.discard(part.workspace.organization_id)


@transaction.atomic
def _claim(now: datetime) -> ExportPart | None:
    """Lease an unfinished part to this process."""
    parts = ExportPart.objects.across_workspaces(reason="the worker serves all workspaces")
    part = (
        parts.claimable(now)
        .exclude(workspace__organization_id__in=_running)
        .select_related("workspace")
        .order_by("created_at", "start_time")
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .first()
    )
    if part is None:
        return None
    part.locked_until, part.status = now + LEASE, ExportStatus.RUNNING
    part.save(update_fields=["locked_until", "status", "updated_at"])
    exports = BulkExport.objects.for_workspace(part.workspace_id).filter(pk=part.export_id)
    exports.filter(status=ExportStatus.CREATED).update(status=ExportStatus.RUNNING, updated_at=now)
    return part


def _run_part(part: ExportPart, deadline: float) -> None:
    export = BulkExport.unscoped.select_related("destination").get(pk=part.export_id)
    if timezone.now() - export.created_at > TIMEOUT:
        _finish(part, ExportStatus.TIMED_OUT)
        return
    try:
        writer = create_writer(export.destination)
        while _write_file(export, part, writer):
            if time.monotonic() > deadline:
                _release(part)
                return
    except (WriteFailed, core_errors.AppError) as error:
        _record_failure(part, str(error))
    except Exception:
        logger.exception("part %s of an export failed", part.pk)
        _record_failure(part, "The export failed because of an internal error.")
    else:
        _finish(part, ExportStatus.COMPLETED)


def _write_file(export: BulkExport, part: ExportPart, writer: Writer) -> bool:
    """Write the next file; return whether the part may have more runs."""
    fields = export.fields or list(FIELDS)
    runs, cursor = _next_runs(export, part, fields)
    if runs:
        feedback = (
            score_stats.by_run(export.workspace_id, [run.row.id for run in runs])
            if FEEDBACK in fields
            else {}
        )
        content = to_parquet(runs, fields, compression=export.compression, feedback=feedback)
        key = f"{part_folder(export, part)}/part-{len(part.files):05d}.parquet"
        write(writer, key, content)
        part.files = [*part.files, writer.path(key)]
        part.rows_written += len(runs)
    part.cursor = cursor or part.cursor
    part.locked_until = timezone.now() + LEASE
    parts = ExportPart.objects.for_workspace(part.workspace_id).filter(pk=part.pk)
    is_updated = parts.unfinished().update(
        files=part.files,
        rows_written=part.rows_written,
        cursor=part.cursor,
        locked_until=part.locked_until,
        updated_at=timezone.now(),
    )
    return bool(is_updated and cursor)


def _next_runs(
    export: BulkExport, part: ExportPart, fields: list[str]
) -> tuple[list[RunDetail], str | None]:
    query = RunQuery(
        project_ids=[export.project_id],
        started_from=part.start_time,
        started_until=part.end_time - timedelta(microseconds=1),
        where=filters.parse(export.filter) if export.filter else None,
        oldest_first=True,
    )
    runs: list[RunDetail] = []
    size = 0
    cursor = part.cursor or None
    while len(runs) < MAX_FILE_ROWS and size < MAX_FILE_BYTES:
        page = run_store.query(
            export.workspace_id,
            query,
            limit=PAGE_SIZE,
            cursor=cursor,
            payloads=required_payloads(fields),
        )
        cursor = page.next_cursor
        for run in page.runs:
            runs.append(run)
            size += sum(len(run.stored(payload) or b"") for payload in run.payloads)
            if size >= MAX_FILE_BYTES and run is not page.runs[-1]:
                return runs, cursors.encode_cursor(run.row.partition_time, run.row.id)
        if cursor is None:
            break
    return runs, cursor


def part_folder(export: BulkExport, part: ExportPart) -> str:
    """Return the Hive-style folder of a part's files."""
    runs = "runs" if export.format_version == "v1" else "resource=runs"
    day = part.start_time
    parts = (
        export.destination.prefix,
        f"export_id={export.pk}",
        f"tenant_id={export.workspace_id}",
        f"session_id={export.project_id}",
        runs,
        f"year={day.year}",
        f"month={day.month}",
        f"day={day.day}",
    )
    return "/".join(name for name in parts if name)


def _release(part: ExportPart) -> None:
    ExportPart.objects.for_workspace(part.workspace_id).filter(pk=part.pk).unfinished().update(
        locked_until=None, updated_at=timezone.now()
    )


def _record_failure(part: ExportPart, reason: str) -> None:
    """Retry with exponential backoff; fail the part after `MAX_ATTEMPTS`."""
    part.attempts += 1
    problem = {"at": timezone.now().isoformat(), "detail": reason[:1000]}
    part.problems = [*part.problems, problem][-_MAX_PROBLEMS:]
    if part.attempts >= MAX_ATTEMPTS:
        part.save(update_fields=["attempts", "problems"])
        _finish(part, ExportStatus.FAILED)
        return
    part.locked_until = timezone.now() + timedelta(seconds=min(5 * 2**part.attempts, 1800))
    part.save(update_fields=["attempts", "problems", "locked_until", "updated_at"])


@transaction.atomic
def _finish(part: ExportPart, status: ExportStatus) -> None:
    """Finish the part, and also its export if no other part is unfinished."""
    now = timezone.now()
    exports = BulkExport.objects.for_workspace(part.workspace_id)
    export = exports.select_for_update(no_key=True).get(pk=part.export_id)
    siblings = ExportPart.objects.for_workspace(part.workspace_id).filter(export=export)
    siblings.filter(pk=part.pk).unfinished().update(
        status=status, finished_at=now, locked_until=None, updated_at=now
    )
    if export.finished_at is not None or siblings.unfinished().exists():
        return
    statuses = set(siblings.values_list("status", flat=True))
    final_status = next(
        (item for item in (ExportStatus.FAILED, ExportStatus.TIMED_OUT) if item in statuses),
        ExportStatus.COMPLETED,
    )
    services.finish(export, final_status, now)
