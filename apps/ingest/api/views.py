"""Endpoints that receive runs. They are plain views, because they serve most requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.http import HttpRequest
from django.urls import path

from apps.api_keys.lightweight_views import StatusAndBody, api_key_required, dispatch_method
from apps.core.callers import Caller
from apps.core.errors import AppError, Unavailable
from apps.core.ids import uuid7
from apps.ingest import errors
from apps.ingest.decoders import IngestRequest, decode_batch, decode_multipart, decode_single
from apps.ingest.multipart import parse_boundary
from apps.ingest.operations import RejectedItem
from apps.ingest.request_body import body_size, read_body
from apps.ingest.services.ingest_log import count_rejections
from apps.ingest.services.ingest_runs import ingest
from apps.organizations.permissions import Permission
from apps.tracing.api.v1.runs import RunView

ACCEPTED = 202


def _ingest(caller: Caller, decoded: IngestRequest, request: HttpRequest) -> StatusAndBody:
    decoded.size = body_size(request)
    return ACCEPTED, ingest(caller.workspace_id, decoded).as_json()


@contextmanager
def _counted_rejections(caller: Caller) -> Iterator[None]:
    """Count a request that is rejected before it is decoded in the ingest log."""
    try:
        yield
    except AppError as error:
        if error.status < Unavailable.status:
            count_rejections(caller.workspace_id, Counter({(None, error.code): 1}))
        raise
    except RejectedItem as error:
        count_rejections(caller.workspace_id, Counter({(None, error.reason): 1}))
        raise errors.RunsRejected(str(error)) from None


@api_key_required("POST", Permission.RUNS_INGEST)
def create_run(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Create one run; a missing id or tree position is assigned."""
    with _counted_rejections(caller):
        decoded = decode_single(read_body(request), is_update=False)
    (operation,) = decoded.operations
    operation.run.id = operation.run.id or uuid7()
    status, value = _ingest(caller, decoded, request)
    return status, {**value, "id": operation.run.id}


@api_key_required("PATCH", Permission.RUNS_INGEST)
def update_run(request: HttpRequest, caller: Caller, run_id: UUID) -> StatusAndBody:
    """Update one run; the update may arrive before its run."""
    with _counted_rejections(caller):
        decoded = decode_single(read_body(request), is_update=True, run_id=run_id)
    return _ingest(caller, decoded, request)


@api_key_required("POST", Permission.RUNS_INGEST)
def ingest_batch(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Store `{"post": [...], "patch": [...]}`."""
    with _counted_rejections(caller):
        decoded = decode_batch(read_body(request))
    return _ingest(caller, decoded, request)


@api_key_required("POST", Permission.RUNS_INGEST)
def ingest_multipart(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Store a multipart body with one part for each field of a run, in any order."""
    with _counted_rejections(caller):
        boundary = parse_boundary(request.headers.get("Content-Type", ""))
        decoded = decode_multipart(read_body(request), boundary)
    return _ingest(caller, decoded, request)


routes = [
    path("runs/batch", dispatch_method(post=ingest_batch), name="run-batch"),
    path("runs/multipart", dispatch_method(post=ingest_multipart), name="run-multipart"),
    path("runs", dispatch_method(post=create_run), name="run-create"),
    path(
        "runs/<uuid:run_id>",
        dispatch_method(get=RunView.as_view(), patch=update_run),
        name="run-read-update",
    ),
]
