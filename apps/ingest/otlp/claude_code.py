"""Claude Code events: OTLP log records converted to spans.

Claude Code sends log records for a prompt, each model request and each tool call, without spans.
Each prompt becomes a trace and the session its thread. The spans of a prompt are children of a root
that is never sent; a placeholder root takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from apps.ingest.errors import BadBody
from apps.ingest.otlp import json_decoder, protobuf_decoder
from apps.ingest.otlp.encoding import PROTOBUF
from apps.ingest.otlp.spans import (
    ERROR,
    OK,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Attributes,
    DecodedSpans,
    Span,
    SpanSource,
)

_PREFIX = "claude_code."
_RUN_TYPES = {"api_request": "llm", "api_error": "llm", "tool_result": "tool"}
_NUMBER_TYPES = {
    "input_tokens": int,
    "output_tokens": int,
    "cache_read_tokens": int,
    "cache_creation_tokens": int,
    "cost_usd": float,
    "duration_ms": float,
    "ttft_ms": float,
}
_ATTRIBUTE_NAMES = {
    "prompt": "user_prompt",
    "model": "gen_ai.request.model",
    "tool_name": "gen_ai.tool.name",
    "tool_parameters": "tool_input",
    "cost_usd": "gen_ai.usage.cost",
}
_MAX_DURATION_MS = 86_400_000


def convert_events(records: Iterable[LogRecord]) -> DecodedSpans:
    """Convert each event to a span; events without a time are rejected."""
    decoded = DecodedSpans()
    for record in records:
        if record.time_ns <= 0:
            decoded.reject("An event has no time.")
        else:
            decoded.spans.append(_convert_event(record))
    return decoded


def _convert_event(record: LogRecord) -> Span:
    event = record.name.removeprefix(_PREFIX)
    fields = {key: _parse_number(key, value) for key, value in record.attributes.items()}
    trace_id, parent = _trace_ids(fields)
    duration = fields.get("duration_ms")
    has_duration = isinstance(duration, float) and 0 <= duration < _MAX_DURATION_MS
    error = fields.get("error")
    is_error = bool(error) or str(fields.get("success", "")).lower() == "false"
    attributes = {_ATTRIBUTE_NAMES.get(key, key): value for key, value in fields.items()}
    attributes["langsmith.span.kind"] = _RUN_TYPES.get(event, "chain")
    if event in {"api_request", "api_error"}:
        attributes.setdefault("gen_ai.provider.name", "anthropic")
    tool_name = fields.get("tool_name")
    return Span(
        record.source,
        trace_id,
        _digest(SPAN_ID_BYTES, trace_id, event, fields.get("event.sequence", record.time_ns)),
        parent,
        tool_name if isinstance(tool_name, str) and event == "tool_result" else record.name,
        record.time_ns - int(duration * 1e6 if has_duration and duration else 0),
        record.time_ns,
        attributes,
        [],
        [],
        status_code=ERROR if is_error else OK,
        status_message=str(error or ""),
    )


def _trace_ids(fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """The trace id of the prompt, and the id of its root span, which is never sent."""
    trace_id = _digest(TRACE_ID_BYTES, fields.get("session.id"), fields.get("prompt.id"))
    return trace_id, _digest(SPAN_ID_BYTES, trace_id, "root")


def _digest(size: int, *parts: object) -> bytes:
    return blake2b(
        "\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=size
    ).digest()


def _parse_number(key: str, value: Any) -> Any:
    """Parse a number, which Claude Code sends as a string; return other values unchanged."""
    number_type = _NUMBER_TYPES.get(key)
    if number_type is None or isinstance(value, bool):
        return value
    try:
        return number_type(value)
    except (TypeError, ValueError, OverflowError):
        return value


# -- log records -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogRecord:
    source: SpanSource
    name: str
    time_ns: int
    attributes: Attributes


def decode_logs(body: bytes, encoding: str) -> list[LogRecord]:
    """Decode an `ExportLogsServiceRequest`. Raises `BadBody` if it is malformed."""
    return _decode_protobuf(body) if encoding == PROTOBUF else _decode_json(body)


def _decode_protobuf(body: bytes) -> list[LogRecord]:
    # As in JSON, a record keeps its other strings if one is not UTF-8.
    request, _ = protobuf_decoder.parse(body, ExportLogsServiceRequest)
    records = []
    for resource_logs in request.resource_logs:
        resource = protobuf_decoder.convert_attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            source = SpanSource(resource, scope_logs.scope.name, scope_logs.scope.version)
            records += [
                _build_record(
                    source,
                    record.event_name or record.body.string_value,
                    record.time_unix_nano or record.observed_time_unix_nano,
                    protobuf_decoder.convert_attributes(record.attributes),
                )
                for record in scope_logs.log_records
            ]
    return records


class _Log(json_decoder.Struct):
    time_unix_nano: int | str | None = None
    observed_time_unix_nano: int | str | None = None
    event_name: str | None = None
    body: json_decoder.AnyValue | None = None
    attributes: list[json_decoder.KeyValue] | None = None


class _ScopeLogs(json_decoder.Struct):
    scope: json_decoder.InstrumentationScope | None = None
    log_records: list[_Log] | None = None


class _ResourceLogs(json_decoder.Struct):
    resource: json_decoder.ResourceFields | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _LogsRequest(json_decoder.Struct):
    resource_logs: list[_ResourceLogs] | None = None


_logs_decoder = msgspec.json.Decoder(_LogsRequest)


def _decode_json(body: bytes) -> list[LogRecord]:
    try:
        request = json_decoder.decode_lenient(body, _logs_decoder)
        return [
            _build_record(
                SpanSource(
                    json_decoder.convert_attributes(
                        item.resource.attributes if item.resource else None
                    ),
                    logs.scope.name or "" if logs.scope else "",
                    logs.scope.version or "" if logs.scope else "",
                ),
                log.event_name or (log.body.string_value or "" if log.body else ""),
                json_decoder.parse_int(log.time_unix_nano or log.observed_time_unix_nano),
                json_decoder.convert_attributes(log.attributes),
            )
            for item in request.resource_logs or ()
            for logs in item.scope_logs or ()
            for log in logs.log_records or ()
        ]
    except (ValueError, RecursionError) as error:
        raise BadBody(f"The body is not OTLP in JSON: {error}") from None


def _build_record(
    source: SpanSource, name: str, time_ns: int, attributes: dict[str, Any]
) -> LogRecord:
    event_name = attributes.get("event.name")
    record_name = event_name if isinstance(event_name, str) else name
    return LogRecord(source, record_name, time_ns, attributes)
