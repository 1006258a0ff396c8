"""Downloads of runs and traces as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.core.json import dumps
from apps.organizations.permissions import Permission
from apps.trace_store import ALL_PAYLOADS, RunQuery, run_store
from apps.trace_store.errors import FilterError
from apps.tracing.api.v1.rendering import runs_json
from apps.tracing.models import Project
from apps.tracing.pages.list_state import ListState
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, workspace_page

BATCH_SIZE = 100
MAX_RUNS = 100_000


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_download(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponseBase:
    """Download the run or, with `whole`, all runs of the trace, one per line."""
    project = get_project(request.caller.workspace_id, project_id)
    if "whole" in request.GET:
        query = RunQuery(project_ids=[project.pk], trace_id=run_id, oldest_first=True)
        return _file_response(
            _ndjson_lines(project, query), f"trace-{run_id}.jsonl", "application/x-ndjson"
        )
    run = run_store.get(project.workspace_id, run_id, project_id=project.pk)
    if run is None:
        raise errors.NotFound
    body = dumps(runs_json(project.workspace_id, [run])[0])
    return _file_response(iter([body]), f"run-{run_id}.json", "application/json")


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_runs_download(request: PageRequest, project_id: UUID) -> HttpResponseBase:
    """Download all runs that the list matches, one per line."""
    project = get_project(request.caller.workspace_id, project_id)
    try:
        query = ListState.read(request.GET).query(project)
    except FilterError as error:
        raise errors.BadRequest(error.detail) from None
    return _file_response(
        _ndjson_lines(project, query), f"{project.pk}.jsonl", "application/x-ndjson"
    )


def _ndjson_lines(project: Project, query: RunQuery) -> Iterator[bytes]:
    cursor, sent = None, 0
    while sent < MAX_RUNS:
        page = run_store.query(
            project.workspace_id, query, limit=BATCH_SIZE, cursor=cursor, payloads=ALL_PAYLOADS
        )
        for run in runs_json(project.workspace_id, page.runs):
            yield dumps(run) + b"\n"
        sent += len(page.runs)
        cursor = page.next_cursor
        if cursor is None:
            return


def _file_response(lines: Iterator[bytes], name: str, kind: str) -> StreamingHttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(lines, content_type=kind, headers=headers)
