"""Writing the parts of exports, file by file.

A file is put first, then the part's row says so, with the cursor behind its last run. A worker that
dies in between leaves a file that the next one, which begins at the cursor, replaces by the same
name: no run is missing and none is there twice.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.core import errors as core_errors
from apps.exports import services
from apps.exports.errors import NotWritten
from apps.exports.models import BulkExport, ExportPart, Status
from apps.exports.parquet import FEEDBACK, FIELDS, payloads_of, to_parquet
from apps.exports.writers import Writer, writer_to
from apps.feedback.services import score_stats
from apps.trace_store import RunDetail, RunQuery, filters, run_store

logger = logging.getLogger(__name__)

PAGE = 500
ROWS_A_FILE = 20_000
BYTES_A_FILE = 64 * 1024 * 1024
LEASE = timedelta(minutes=15)
PATIENCE = timedelta(hours=72)
MOST_ATTEMPTS = 20
_REMEMBERED = 5


def work_for(*, seconds: float) -> bool:
    """Write files for so long; whether there is more to do."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        part = _claim(timezone.now())
        if part is None:
            return False
        _work_on(part, until)
    return True


@transaction.atomic
def _claim(now: datetime) -> ExportPart | None:
    """A part that nobody works on, for this process."""
    parts = ExportPart.objects.across_workspaces(reason="each part is of its own workspace")
    part = (
        parts.workable(now)
        .order_by("created_at", "start_time")
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .first()
    )
    if part is None:
        return None
    part.busy_until, part.status = now + LEASE, Status.RUNNING
    part.save(update_fields=["busy_until", "status", "updated_at"])
    exports = BulkExport.objects.for_workspace(part.workspace_id).filter(pk=part.export_id)
    exports.filter(status=Status.CREATED).update(status=Status.RUNNING, updated_at=now)
    return part


def _work_on(part: ExportPart, until: float) -> None:
    export = BulkExport.unscoped.select_related("destination").get(pk=part.export_id)
    if timezone.now() - export.created_at > PATIENCE:
        _end(part, Status.TIMED_OUT)
        return
    try:
        writer = writer_to(export.destination)
        while _write_file(export, part, writer):
            if time.monotonic() > until:
                _let_go(part)
                return
    except (NotWritten, core_errors.AppError) as error:
        _failed(part, str(error))
    except Exception:
        logger.exception("part %s of an export failed", part.pk)
        _failed(part, "Something went wrong on our side.")
    else:
        _end(part, Status.COMPLETED)


def _write_file(export: BulkExport, part: ExportPart, writer: Writer) -> bool:
    """Write the next file; whether there may be another one."""
    fields = export.fields or list(FIELDS)
    runs, cursor = _next_runs(export, part, fields)
    if runs:
        feedback = (
            score_stats.by_run(export.workspace_id, [run.row.id for run in runs])
            if FEEDBACK in fields
            else {}
        )
        content = to_parquet(runs, fields, compression=export.compression, feedback=feedback)
        key = f"{folder(export, part)}/part-{len(part.files):05d}.parquet"
        writer.put(key, content)
        part.files = [*part.files, writer.path(key)]
        part.rows_written += len(runs)
    part.cursor = cursor or part.cursor
    part.busy_until = timezone.now() + LEASE
    parts = ExportPart.objects.for_workspace(part.workspace_id).filter(pk=part.pk)
    is_ours = parts.unfinished().update(
        files=part.files,
        rows_written=part.rows_written,
        cursor=part.cursor,
        busy_until=part.busy_until,
        updated_at=timezone.now(),
    )
    return bool(is_ours and cursor)


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
    while len(runs) < ROWS_A_FILE and size < BYTES_A_FILE:
        page = run_store.query(
            export.workspace_id, query, limit=PAGE, cursor=cursor, payloads=payloads_of(fields)
        )
        runs += page.runs
        size += sum(len(text) for run in page.runs for text in run.payloads.values())
        cursor = page.next_cursor
        if cursor is None:
            break
    return runs, cursor


def folder(export: BulkExport, part: ExportPart) -> str:
    """The hive-style folder of a part's files, as readers of data lakes expect it."""
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
    return "/".join(one for one in parts if one)


def _let_go(part: ExportPart) -> None:
    ExportPart.objects.for_workspace(part.workspace_id).filter(pk=part.pk).unfinished().update(
        busy_until=None, updated_at=timezone.now()
    )


def _failed(part: ExportPart, reason: str) -> None:
    """Try again later, ever later, and at last give up."""
    part.attempts += 1
    problem = {"at": timezone.now().isoformat(), "detail": reason[:1000]}
    part.problems = [*part.problems, problem][-_REMEMBERED:]
    if part.attempts >= MOST_ATTEMPTS:
        part.save(update_fields=["attempts", "problems"])
        _end(part, Status.FAILED)
        return
    part.busy_until = timezone.now() + timedelta(seconds=min(5 * 2**part.attempts, 1800))
    part.save(update_fields=["attempts", "problems", "busy_until", "updated_at"])


@transaction.atomic
def _end(part: ExportPart, status: Status) -> None:
    """The part is over; with the last one, so is its export."""
    now = timezone.now()
    exports = BulkExport.objects.for_workspace(part.workspace_id)
    export = exports.select_for_update(no_key=True).get(pk=part.export_id)
    siblings = ExportPart.objects.for_workspace(part.workspace_id).filter(export=export)
    siblings.filter(pk=part.pk).unfinished().update(
        status=status, finished_at=now, busy_until=None, updated_at=now
    )
    if export.finished_at is not None or siblings.unfinished().exists():
        return
    ends = set(siblings.values_list("status", flat=True))
    worst = next((s for s in (Status.FAILED, Status.TIMED_OUT) if s in ends), Status.COMPLETED)
    services.end(export, worst, now)
