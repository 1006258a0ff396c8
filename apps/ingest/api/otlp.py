"""OpenTelemetry comes in here: spans, and the events of a coding agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from apps.api_keys.lightweight_views import Answer, keyed
from apps.core import errors
from apps.core.callers import Caller
from apps.core.json import loads
from apps.ingest.otlp import answers, claude_code, decoding, logs
from apps.ingest.otlp.requests import request_of
from apps.ingest.otlp.spans import Decoded
from apps.ingest.request_body import read_body, size_of
from apps.ingest.services.ingest_runs import ingest
from apps.organizations.permissions import Permission

_PROJECT, _AGENT, _ENVIRONMENT = (
    "Langsmith-Project",
    "Langsmith-Agent-Id",
    "Langsmith-Agent-Environment",
)
View = Callable[[HttpRequest], HttpResponse]


def in_kind(view: View) -> View:
    """Failures in the encoding of the question; a body that makes no sense is always 400.

    OTLP's exporters take 400 as final, and would send again for ever what they take as passing.
    """

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        response = view(request)
        if response.status_code == errors.Invalid.status:
            response.status_code = errors.BadRequest.status
        is_protobuf = (request.content_type or "").lower() != decoding.JSON
        if is_protobuf and response.status_code >= errors.BadRequest.status:
            detail = str(loads(response.content)["detail"])
            response.content = answers.status(detail)
            response["Content-Type"] = decoding.PROTOBUF
        return response

    return answer


@in_kind
@keyed("POST", Permission.RUNS_INGEST)
def export_traces(request: HttpRequest, caller: Caller) -> Answer:
    """An `ExportTraceServiceRequest`, in protobuf or in JSON."""
    encoding = decoding.encoding_of(request.headers.get("Content-Type", ""))
    decoded = decoding.decode(read_body(request), encoding)
    return _stored(request, caller, decoded, encoding)


@in_kind
@keyed("POST", Permission.RUNS_INGEST)
def export_claude_code(request: HttpRequest, caller: Caller) -> Answer:
    """Claude Code's events: an `ExportLogsServiceRequest`, in JSON or in protobuf."""
    encoding = decoding.encoding_of(request.headers.get("Content-Type", ""))
    decoded = claude_code.spans(logs.decode(read_body(request), encoding))
    return _stored(request, caller, decoded, encoding)


def _stored(request: HttpRequest, caller: Caller, decoded: Decoded, encoding: str) -> Answer:
    brought = request_of(decoded, project=project_of(request))
    brought.size, brought.wire = size_of(request), "otlp"
    outcome = ingest(caller.workspace_id, brought) if brought.has_anything else None
    refused = outcome.refused if outcome else ()
    return 200, HttpResponse(answers.success(encoding, refused), content_type=encoding)


def project_of(request: HttpRequest) -> str | None:
    """The project that the headers name, or the agent that they name instead."""
    headers = request.headers
    if name := headers.get(_PROJECT):
        return name
    agent, environment = headers.get(_AGENT), headers.get(_ENVIRONMENT)
    return f"{agent}/{environment}" if agent and environment else agent


routes = [
    path("otel/v1/traces", export_traces, name="otlp-traces"),
    path("otel/v1/claude_code", export_claude_code, name="otlp-claude-code"),
]
