"""Log records of OTLP in either encoding, as far as they are events with attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from apps.ingest.errors import BadBody
from apps.ingest.otlp import jsonspans, protobuf
from apps.ingest.otlp.decoding import PROTOBUF
from apps.ingest.otlp.spans import Attributes, Origin


@dataclass(frozen=True, slots=True)
class Record:
    origin: Origin
    name: str
    time_ns: int
    attributes: Attributes


def decode(body: bytes, encoding: str) -> list[Record]:
    """The records; `BadBody` when the body is no request of logs."""
    return _protobuf(body) if encoding == PROTOBUF else _json(body)


def _protobuf(body: bytes) -> list[Record]:
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except (DecodeError, RecursionError):
        raise BadBody("The body is no ExportLogsServiceRequest in protobuf.") from None
    found = []
    for resource_logs in request.resource_logs:
        resource = protobuf.attributes_of(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            origin = Origin(resource, scope_logs.scope.name, scope_logs.scope.version)
            found += [
                _record(
                    origin,
                    one.event_name or one.body.string_value,
                    one.time_unix_nano or one.observed_time_unix_nano,
                    protobuf.attributes_of(one.attributes),
                )
                for one in scope_logs.log_records
            ]
    return found


class _Log(jsonspans.Struct):
    time_unix_nano: int | str | None = None
    observed_time_unix_nano: int | str | None = None
    event_name: str | None = None
    body: jsonspans.AnyValue | None = None
    attributes: list[jsonspans.Pair] | None = None


class _ScopeLogs(jsonspans.Struct):
    scope: jsonspans.Scope | None = None
    log_records: list[_Log] | None = None


class _ResourceLogs(jsonspans.Struct):
    resource: jsonspans.Resource | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _Request(jsonspans.Struct):
    resource_logs: list[_ResourceLogs] | None = None


_requests = msgspec.json.Decoder(_Request)


def _json(body: bytes) -> list[Record]:
    try:
        request = jsonspans.strict_or_repaired(body, _requests)
        return [
            _record(
                Origin(
                    jsonspans.attributes_of(one.resource.attributes if one.resource else None),
                    logs.scope.name or "" if logs.scope else "",
                    logs.scope.version or "" if logs.scope else "",
                ),
                log.event_name or (log.body.string_value or "" if log.body else ""),
                jsonspans.number(log.time_unix_nano or log.observed_time_unix_nano),
                jsonspans.attributes_of(log.attributes),
            )
            for one in request.resource_logs or ()
            for logs in one.scope_logs or ()
            for log in logs.log_records or ()
        ]
    except (ValueError, RecursionError) as error:
        raise BadBody(f"The body is no OTLP in JSON: {error}") from None


def _record(origin: Origin, name: str, time_ns: int, attributes: dict[str, Any]) -> Record:
    named = attributes.get("event.name")
    return Record(origin, named if isinstance(named, str) else name, time_ns, attributes)
