"""Spans of users of OpenTelemetry exporters. Each case names its report."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from apps.core.http.wsgi_bridge import WSGIBridge
from apps.ingest.api.otlp import encode_refusal
from apps.ingest.errors import BadBody
from apps.ingest.otlp import claude_code, encoding, invalid_text, protobuf_decoder
from apps.ingest.otlp.run_mapping import map_span
from apps.ingest.otlp.spans import span_run_id, trace_run_id
from apps.trace_store import Payload
from tests.core.test_wsgi_bridge import make_scope
from tests.factories.spans import BEGIN, TRACE, encode_attributes, export, span, span_id
from tests.factories.tracing import count_stored_runs, read_run

pytestmark = pytest.mark.django_db
MARK = "\N{BLACK SQUARE}"
"""A character whose bytes the tests replace by as many that are not UTF-8."""


def with_invalid_text(body: bytes) -> bytes:
    assert MARK.encode() in body
    return body.replace(MARK.encode(), b"\xff\xfe\xfd")


def decode_span(**fields: Any) -> Any:
    (decoded,) = protobuf_decoder.decode(export(span(**fields)).SerializeToString()).spans
    return map_span(decoded)


# greptimedb#7875: one invalid string lost the whole batch.
@pytest.mark.parametrize(
    "fields",
    [
        {"name": f"cut {MARK}"},
        {"attributes": {"a": f"{MARK}"}},
        {"attributes": {f"{MARK}": 1}},
        {"attributes": {"a": {"b": [f"{MARK} c"]}}},
        {"error": f"{MARK}"},
        {"trace_state": f"a={MARK}"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_span_with_invalid_text_does_not_stop_the_others(exporter, workspace, fields):
    spans = [span(1, name="root"), span(2, 1, **fields), span(3, 1, name="leaf")]
    body = with_invalid_text(export(*spans).SerializeToString())

    response = exporter.send(body)

    assert response.status_code == 200, response.content
    partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert partial.rejected_spans == 1
    assert partial.error_message == f"span {span_id(2).hex()}: A string of the span is not UTF-8."
    assert read_run(workspace, trace_run_id(TRACE)).row.name == "root"
    assert read_run(workspace, span_run_id(TRACE, span_id(3))).row.name == "leaf"
    assert count_stored_runs() == 2


def test_resource_with_invalid_text_keeps_its_spans(exporter, workspace):
    request = export(span(name="root"), resource={"host.name": f"a{MARK}"}, scope=f"lib {MARK}")

    response = exporter.send(with_invalid_text(request.SerializeToString()))

    assert (response.status_code, response.content) == (200, b"")
    run = read_run(workspace, trace_run_id(TRACE))
    assert run.row.name == "root"
    assert "a\ufffd" in str(run.value(Payload.EXTRA))


def test_batch_of_only_invalid_text_is_refused_by_name(exporter):
    body = with_invalid_text(export(span(7, name=MARK)).SerializeToString())

    response = exporter.send(body)

    assert response.status_code == 400
    assert response.content == encoding.encode_status("A string of the span is not UTF-8.")
    assert count_stored_runs() == 0


def test_log_record_keeps_its_other_strings():
    record = LogRecord(
        time_unix_nano=BEGIN,
        attributes=encode_attributes({"event.name": "user_prompt", "prompt": f"a{MARK}"}),
    )
    scope_logs = ScopeLogs(scope=InstrumentationScope(name="cli"), log_records=[record])
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[scope_logs])])

    body = with_invalid_text(request.SerializeToString())
    (decoded,) = claude_code.decode_logs(body, encoding.PROTOBUF)

    assert decoded.attributes["prompt"].startswith("a\ufffd")


@pytest.mark.parametrize("damage", [lambda body: body[:-3], lambda body: body + b"\x0a\xff\xff"])
def test_malformed_request_is_still_refused(damage):
    body = damage(with_invalid_text(export(span(name=MARK)).SerializeToString()))

    with pytest.raises(BadBody):
        protobuf_decoder.decode(body)


def test_repair_of_a_body_has_a_bound(monkeypatch):
    monkeypatch.setattr(invalid_text, "_MAX_FIELDS", 100)
    body = with_invalid_text(export(span(attributes={MARK: 1})).SerializeToString())

    assert protobuf_decoder.decode(body).undecodable
    with pytest.raises(BadBody):
        protobuf_decoder.decode(body + b"\x78\x00" * 100)


@pytest.mark.parametrize(("depth", "is_accepted"), [(20, True), (400, False), (20_000, False)])
def test_deep_value_next_to_invalid_text_is_read_or_refused(depth, is_accepted):
    """A value that a string of the same span sends on the slow path is as deep as it likes."""
    value = b"\x0a\x00"
    for _ in range(depth):
        array = b"\x0a" + invalid_text.encode_varint(len(value)) + value
        value = b"\x2a" + invalid_text.encode_varint(len(array)) + array
    pair = b"\x0a\x03\xff\xfe\xfd\x12" + invalid_text.encode_varint(len(value)) + value
    body = b"\x4a" + invalid_text.encode_varint(len(pair)) + pair
    for tag in (b"\x12", b"\x12", b"\x0a"):
        body = tag + invalid_text.encode_varint(len(body)) + body

    if is_accepted:
        assert protobuf_decoder.decode(body).undecodable
    else:
        with pytest.raises(BadBody):
            protobuf_decoder.decode(body)


# langfuse#11550: an exporter cannot read JSON in answer to protobuf.
@pytest.mark.parametrize(
    ("path", "content_type", "is_protobuf"),
    [
        ("/otel/v1/traces", "application/x-protobuf", True),
        ("/api/v1/otel/v1/traces", "application/x-protobuf", True),
        ("/otel/v1/claude_code", "application/octet-stream", True),
        ("/otel/v1/metrics", "", True),
        ("/otel/v1/traces", "application/json; charset=utf-8", False),
        ("/runs/batch", "application/x-protobuf", False),
    ],
)
def test_refusal_of_a_large_body_has_the_encoding_of_the_request(
    settings, path, content_type, is_protobuf
):
    settings.MAX_BODY_BYTES = 1000
    headers = [("content-length", "2000"), ("content-type", content_type)]
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    bridge = WSGIBridge(lambda *_: [], None, encode_refusal)
    asyncio.run(bridge(make_scope(path, "POST", headers), None, send))

    media_type = b"application/x-protobuf" if is_protobuf else b"application/json"
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"content-type"]) == (413, media_type)
    status = encoding.encode_status("The request body exceeds 1000 bytes.")
    assert (sent[1]["body"] == status) == is_protobuf


# opik PR 7152: agents were counted as model calls.
@pytest.mark.parametrize(
    ("attributes", "run_type"),
    [
        ({"gen_ai.agent.name": "planner", "gen_ai.request.model": "m"}, "chain"),
        ({"gen_ai.agent.id": "a1", "gen_ai.request.model": "m"}, "chain"),
        ({"gen_ai.agent.name": "planner", "llm.model_name": "m"}, "chain"),
        ({"gen_ai.agent.name": "planner", "gen_ai.tool.name": "search"}, "tool"),
        (
            {
                "gen_ai.agent.name": "planner",
                "gen_ai.request.model": "m",
                "gen_ai.operation.name": "chat",
            },
            "llm",
        ),
        ({"gen_ai.request.model": "m"}, "llm"),
    ],
)
def test_agent_span_with_a_model_is_no_model_call(attributes, run_type):
    assert decode_span(attributes=attributes).run_type == run_type


# agentic-ci PR 211: arguments of a tool were missing.
@pytest.mark.parametrize("name", ["tool.parameters", "tool_parameters"])
def test_parameters_of_a_tool_are_its_inputs(name):
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "search", name: '{"q": "x"}'}

    assert bytes(decode_span(attributes=attributes).inputs) == b'{"q": "x"}'


def test_input_of_a_tool_precedes_its_parameters():
    attributes = {"input.value": '{"q": 1}', "tool.parameters": '{"type": "object"}'}

    assert bytes(decode_span(attributes=attributes).inputs) == b'{"q": 1}'


def compress_raw(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


# RFC 9110, 8.4: "raw" deflate is in use, and codings are a list.
@pytest.mark.parametrize(
    ("header", "compress"),
    [
        ("deflate", compress_raw),
        ("deflate", zlib.compress),
        ("deflate", gzip.compress),
        ("gzip, identity", gzip.compress),
        ("identity, gzip", gzip.compress),
        ("identity,,GZIP ", gzip.compress),
        ("zstd, identity", zstandard.compress),
        ("identity, identity", bytes),
    ],
)
def test_content_encodings_in_use_are_read(exporter, workspace, header, compress):
    body = compress(export(span(name="packed")).SerializeToString())

    assert exporter.send(body, content_encoding=header).status_code == 200
    assert read_run(workspace, trace_run_id(TRACE)).row.name == "packed"


@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        ("gzip, br", b"x", 415),
        ("gzip, zstd", b"x", 415),
        ("deflate", b"not packed", 400),
        ("deflate", b"", 400),
        ("deflate", compress_raw(b"x" * 100)[:-2], 400),
    ],
)
def test_other_content_encodings_are_refused(exporter, header, body, status):
    assert exporter.send(body, content_encoding=header).status_code == status
