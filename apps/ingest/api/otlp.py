"""OTLP endpoints: spans, and the log events of Claude Code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from apps.api_keys.lightweight_views import StatusAndBody, api_key_required
from apps.core import errors
from apps.core.callers import Caller
from apps.core.http.body_reader import AsgiScope
from apps.core.http.middleware import canonical
from apps.core.http.wsgi_bridge import path_info
from apps.core.json import loads
from apps.ingest.otlp import claude_code, encoding
from apps.ingest.otlp.batch_assembly import build_request
from apps.ingest.otlp.spans import DecodedSpans
from apps.ingest.request_body import body_size, read_body
from apps.ingest.services.ingest_runs import ingest
from apps.organizations.permissions import Permission

_PATH_PREFIX = "/otel/v1/"
_PROJECT_HEADER = "Langsmith-Project"
_AGENT_HEADER = "Langsmith-Agent-Id"
_ENVIRONMENT_HEADER = "Langsmith-Agent-Environment"
View = Callable[[HttpRequest], HttpResponse]


def encode_errors(view: View) -> View:
    """Encode errors in the encoding of the request, and return 400 for an invalid body.

    OTLP exporters retry most statuses forever; they treat 400 as final.
    """

    @csrf_exempt
    @wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        response = view(request)
        if response.status_code == errors.Invalid.status:
            response.status_code = errors.BadRequest.status
        is_protobuf = (request.content_type or "").lower() != encoding.JSON
        if is_protobuf and response.status_code >= errors.BadRequest.status:
            detail = str(loads(response.content)["detail"])
            response.content = encoding.encode_status(detail)
            response["Content-Type"] = encoding.PROTOBUF
        return response

    return wrapper


def encode_refusal(scope: AsgiScope, error: errors.AppError) -> tuple[bytes, bytes] | None:
    """Encode the refusal of a protobuf body that no view has seen, such as one that is too large.

    Returns None for other requests.
    """
    content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
    media_type = content_type.partition(";")[0].strip().lower()
    if not canonical(path_info(scope)).startswith(_PATH_PREFIX) or media_type == encoding.JSON:
        return None
    return encoding.PROTOBUF.encode(), encoding.encode_status(error.detail)


@encode_errors
@api_key_required("POST", Permission.RUNS_INGEST)
def export_traces(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Store an `ExportTraceServiceRequest` in protobuf or JSON."""
    media_type = encoding.parse_encoding(request.headers.get("Content-Type", ""))
    decoded = encoding.decode_spans(read_body(request), media_type)
    return _ingest(request, caller, decoded, media_type)


@encode_errors
@api_key_required("POST", Permission.RUNS_INGEST)
def export_claude_code(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Store the events of Claude Code, an `ExportLogsServiceRequest` in protobuf or JSON."""
    media_type = encoding.parse_encoding(request.headers.get("Content-Type", ""))
    records = claude_code.decode_logs(read_body(request), media_type)
    return _ingest(request, caller, claude_code.convert_events(records), media_type)


@encode_errors
@api_key_required("POST", Permission.RUNS_INGEST)
def discard_signal(request: HttpRequest, caller: Caller) -> StatusAndBody:
    """Accept metrics and logs without storing them; `/info` declares this.

    Exporters that are configured for all signals report an error for any other status.
    """
    media_type = encoding.parse_encoding(request.headers.get("Content-Type", ""))
    read_body(request)
    return 200, HttpResponse(encoding.encode_success(media_type, ()), content_type=media_type)


def _ingest(
    request: HttpRequest, caller: Caller, decoded: DecodedSpans, media_type: str
) -> StatusAndBody:
    ingest_request = build_request(decoded, project=_project_name(request))
    ingest_request.size = body_size(request)
    rejected = (
        () if ingest_request.is_empty else ingest(caller.workspace_id, ingest_request).rejected
    )
    body = encoding.encode_success(media_type, rejected)
    return 200, HttpResponse(body, content_type=media_type)


def _project_name(request: HttpRequest) -> str | None:
    """The project in the headers, or the agent and environment instead."""
    headers = request.headers
    if name := headers.get(_PROJECT_HEADER):
        return name
    agent, environment = headers.get(_AGENT_HEADER), headers.get(_ENVIRONMENT_HEADER)
    return f"{agent}/{environment}" if agent and environment else agent


routes = [
    path("otel/v1/traces", export_traces, name="otlp-traces"),
    path("otel/v1/metrics", discard_signal, name="otlp-metrics"),
    path("otel/v1/logs", discard_signal, name="otlp-logs"),
    path("otel/v1/claude_code", export_claude_code, name="otlp-claude-code"),
]
