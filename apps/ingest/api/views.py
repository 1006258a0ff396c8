"""Runs come in here. Plain views: these are the routes that are called all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.http import HttpRequest
from django.urls import path

from apps.api_keys.lightweight_views import Answer, by_method, keyed
from apps.core.callers import Caller
from apps.core.errors import AppError, Unavailable
from apps.core.ids import uuid7
from apps.ingest import decoders, errors
from apps.ingest.decoders import Request
from apps.ingest.multipart import boundary_of
from apps.ingest.request_body import read_body, size_of
from apps.ingest.services.ingest_log import count_refusals
from apps.ingest.services.ingest_runs import ingest
from apps.ingest.wire import Refusal
from apps.organizations.permissions import Permission
from apps.tracing.api.runs import RunView

ACCEPTED = 202


def _take(caller: Caller, brought: Request, request: HttpRequest) -> Answer:
    brought.size = size_of(request)
    return ACCEPTED, ingest(caller.workspace_id, brought).as_json()


@contextmanager
def _counted(caller: Caller) -> Iterator[None]:
    """What is refused before anybody knows what it is stands in the ledger all the same."""
    try:
        yield
    except AppError as error:
        if error.status < Unavailable.status:
            count_refusals(caller.workspace_id, Counter({(None, error.code): 1}))
        raise
    except Refusal as refusal:
        count_refusals(caller.workspace_id, Counter({(None, refusal.reason): 1}))
        raise errors.RunsRejected(str(refusal)) from None


@keyed("POST", Permission.RUNS_INGEST)
def create_run(request: HttpRequest, caller: Caller) -> Answer:
    """One run; without an id it gets one, without a place in a tree it gets that too."""
    with _counted(caller):
        brought = decoders.decode_single(read_body(request), is_update=False)
    (said,) = brought.operations
    said.run.id = said.run.id or uuid7()
    status, value = _take(caller, brought, request)
    return status, {**value, "id": said.run.id}


@keyed("PATCH", Permission.RUNS_INGEST)
def update_run(request: HttpRequest, caller: Caller, run_id: UUID) -> Answer:
    """An update; it may come before its run."""
    with _counted(caller):
        brought = decoders.decode_single(read_body(request), is_update=True, run_id=run_id)
    return _take(caller, brought, request)


@keyed("POST", Permission.RUNS_INGEST)
def batch(request: HttpRequest, caller: Caller) -> Answer:
    """`{"post": [...], "patch": [...]}`."""
    with _counted(caller):
        brought = decoders.decode_batch(read_body(request))
    return _take(caller, brought, request)


@keyed("POST", Permission.RUNS_INGEST)
def multipart(request: HttpRequest, caller: Caller) -> Answer:
    """One part per piece of a run, in any order."""
    with _counted(caller):
        boundary = boundary_of(request.headers.get("Content-Type", ""))
        brought = decoders.decode_multipart(read_body(request), boundary)
    return _take(caller, brought, request)


routes = [
    path("runs/batch", by_method(post=batch), name="run-batch"),
    path("runs/multipart", by_method(post=multipart), name="run-multipart"),
    path("runs", by_method(post=create_run), name="run-create"),
    path(
        "runs/<uuid:run_id>",
        by_method(get=RunView.as_view(), patch=update_run),
        name="run-read-update",
    ),
]
