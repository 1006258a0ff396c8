"""POST /otel/v1/traces as exporters call it."""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import zstandard
from django.test import Client
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from apps.ingest.otlp.spans import trace_run_id
from apps.organizations.models import Workspace
from apps.trace_store import run_store
from apps.trace_store.dotted_order import format_segment
from apps.tracing.models import Project
from tests.factories.api_keys import key_for
from tests.factories.spans import BEGIN, SECOND, TRACE, event, export, span
from tests.factories.tracing import count_stored_runs
from tests.ingest.otlp.conftest import Exporter

JSON = "application/json"


def convert_ids_to_hex(value: Any) -> Any:
    """Convert the ids of protobuf JSON from base64 to hexadecimal, as in OTLP JSON."""
    if isinstance(value, list):
        return [convert_ids_to_hex(item) for item in value]
    if not isinstance(value, dict):
        return value
    converted = {key: convert_ids_to_hex(item) for key, item in value.items()}
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in converted:
            converted[name] = b64decode(converted[name]).hex()
    return converted


def to_otlp_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    message: dict[str, Any] = convert_ids_to_hex(MessageToDict(request))
    return message


def run_names(workspace: Workspace) -> list[str]:
    return [row.name for row in run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))]


def test_a_request_without_a_key_is_rejected(db: None) -> None:
    response = Client().generic(
        "POST", "/otel/v1/traces", export(span()).SerializeToString(), "application/x-protobuf"
    )

    assert response.status_code == 401
    assert response["Content-Type"] == "application/x-protobuf"
    assert count_stored_runs() == 0


def test_a_read_only_key_is_rejected(workspace: Workspace) -> None:
    response = Exporter(key_for(workspace, "read")).send_spans(span())

    assert response.status_code == 403
    assert count_stored_runs() == 0


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
def test_a_protobuf_request_is_stored(
    exporter: Exporter, workspace: Workspace, prefix: str
) -> None:
    body = export(span(1, name="root"), span(2, 1, at=1, name="child")).SerializeToString()

    response = exporter.send(body, path=f"{prefix}/otel/v1/traces")

    assert (response.status_code, response.content) == (200, b"")
    assert response["Content-Type"] == "application/x-protobuf"
    assert run_names(workspace) == ["root", "child"]


def test_a_json_request_is_stored(exporter: Exporter, workspace: Workspace) -> None:
    request = export(
        span(
            1,
            name="root",
            attributes={"count": 2**62, "flag": True, "list": ["a", 1.5], "none": None},
        ),
        span(2, 1, at=1, name="child", error="broken", events=[event("new_token", at=1.5)]),
    )

    response = exporter.send(json.dumps(to_otlp_json(request)).encode(), JSON)

    assert (response.status_code, response.content, response["Content-Type"]) == (200, b"{}", JSON)
    root, child = run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))
    assert (root.name, child.name, child.status) == ("root", "child", "error")
    assert root.metadata["count"] == 2**62
    assert child.first_token_time is not None


def test_both_encodings_store_the_same_run(exporter: Exporter, workspace: Workspace) -> None:
    request = export(
        span(1, attributes={"input.value": '{"a": 1}', "n": 1, "f": 2.0, "b": b"\x00\xff"})
    )
    exporter.send(request.SerializeToString(), langsmith_project="protobuf")
    exporter.send(json.dumps(to_otlp_json(request)).encode(), JSON, langsmith_project="json")

    projects = Project.objects.for_workspace(workspace).filter(name__in=["protobuf", "json"])
    runs = [
        run_store.get(workspace.pk, trace_run_id(TRACE), project_id=project.pk)
        for project in projects
    ]
    first, second = [
        {payload: run.json(payload) for payload in run.payloads} for run in runs if run
    ]
    assert first == second
    assert len(first) == 2


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_payloads_in_bytes_are_read_as_json(
    exporter: Exporter, workspace: Workspace, encoding: str
) -> None:
    """As the exporter of `langsmith` up to 0.11 sends them."""
    attributes = {"gen_ai.prompt": b'{"question":"why?"}', "gen_ai.completion": b'{"a":1}'}
    request = export(span(1, attributes=attributes))
    if encoding == "json":
        exporter.send(json.dumps(to_otlp_json(request)).encode(), JSON)
    else:
        exporter.send(request.SerializeToString())

    (run,) = run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))
    stored = run_store.get(workspace.pk, run.id)
    assert stored is not None
    assert json.loads(stored.json("inputs")) == {"question": "why?"}
    assert json.loads(stored.json("outputs")) == {"a": 1}


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.compress),
        ("identity", bytes),
    ],
)
def test_a_compressed_body_is_stored(
    exporter: Exporter, workspace: Workspace, encoding: str, compress: Any
) -> None:
    body = compress(export(span(name=encoding)).SerializeToString())

    assert exporter.send(body, content_encoding=encoding).status_code == 200
    assert run_names(workspace) == [encoding]


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "status"),
    [
        (b"\xff\xff\xff", "application/x-protobuf", {}, 400),
        (b"{", JSON, {}, 400),
        (b"[]", JSON, {}, 400),
        (b'{"resourceSpans": {}}', JSON, {}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [1]}]}', JSON, {}, 400),
        (b"\x1f\x8bnot gzip", "application/x-protobuf", {"content_encoding": "gzip"}, 400),
        (b"x", "application/x-protobuf", {"content_encoding": "br"}, 415),
        (b"x", "text/plain", {}, 415),
    ],
)
def test_a_body_that_cannot_be_decoded_is_rejected(
    exporter: Exporter, body: bytes, content_type: str, headers: dict[str, str], status: int
) -> None:
    response = exporter.send(body, content_type, **headers)

    assert response.status_code == status
    if content_type == JSON:
        assert response.json()["code"] == "bad_body"
    else:
        # The body is a google.rpc.Status, whose field 2 is the message.
        assert response["Content-Type"] == "application/x-protobuf"
        assert response.content[0] == 0x12
    assert count_stored_runs() == 0


def test_an_empty_request_is_a_success(exporter: Exporter) -> None:
    assert exporter.send(b"").status_code == 200
    assert exporter.send(b"{}", JSON).content == b"{}"


def test_invalid_spans_do_not_reject_the_others(exporter: Exporter, workspace: Workspace) -> None:
    valid_span = span(1, name="good")
    invalid_spans = [
        span(2, trace=b"short"),
        span(3, trace=bytes(16)),
        span(4, span_id=b""),
        span(5, parent_span_id=b"abc"),
        span(6, start_time_unix_nano=0, end_time_unix_nano=0),
        span(7, at=10 * 86_400),
    ]

    http_response = exporter.send_spans(valid_span, *invalid_spans)

    response = ExportTraceServiceResponse.FromString(http_response.content)
    assert http_response.status_code == 200
    assert response.partial_success.rejected_spans == 6
    assert "The trace id must have 16 bytes" in response.partial_success.error_message
    assert run_names(workspace) == ["good"]


def test_invalid_spans_of_a_json_request_are_counted_in_json(
    exporter: Exporter, workspace: Workspace
) -> None:
    request = to_otlp_json(export(span(1, name="good"), span(2), span(3)))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[1]["traceId"] = "nonsense"
    spans[2]["startTimeUnixNano"] = {"no": "number"}

    response = exporter.send(json.dumps(request).encode(), JSON)

    assert response.status_code == 200
    assert response.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert run_names(workspace) == ["good"]


def test_a_request_of_only_invalid_spans_is_rejected(exporter: Exporter) -> None:
    response = exporter.send_spans(span(trace=b"short"))

    assert response.status_code == 400
    assert count_stored_runs() == 0


@pytest.mark.parametrize(
    ("project_names", "project"),
    [
        ({"span": "a", "resource": "b", "header": "c"}, "a"),
        ({"resource": "b", "header": "c"}, "b"),
        ({"header": "c", "other": "d"}, "c"),
        ({"other": "d"}, "d"),
        ({}, "default"),
    ],
)
def test_the_project_of_a_span_is_selected_by_precedence(
    exporter: Exporter, workspace: Workspace, project_names: dict[str, str], project: str
) -> None:
    attributes = (
        {"langsmith.trace.session_name": project_names["span"]} if "span" in project_names else {}
    )
    attribute_names = {"resource": "langsmith.project.name", "other": "openinference.project.name"}
    resource = {
        name: project_names[source]
        for source, name in attribute_names.items()
        if source in project_names
    }
    headers = {"langsmith_project": project_names["header"]} if "header" in project_names else {}

    exporter.send(
        export(span(attributes=attributes), resource=resource).SerializeToString(), **headers
    )

    (row,) = run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))
    assert Project.objects.for_workspace(workspace).get(pk=row.project_id).name == project


def test_a_foreign_project_id_is_rejected(
    exporter: Exporter, workspace: Workspace, other_workspace: Workspace
) -> None:
    own_project = Project(workspace=workspace, name="by id")
    own_project.save()
    foreign_project = Project(workspace=other_workspace, name="foreign")
    foreign_project.save()

    http_response = exporter.send_spans(
        span(1, attributes={"langsmith.trace.session_id": str(own_project.pk)}),
        span(2, 1, at=1, attributes={"langsmith.trace.session_id": str(foreign_project.pk)}),
    )

    response = ExportTraceServiceResponse.FromString(http_response.content)
    assert response.partial_success.rejected_spans == 1
    assert [row.project_id for row in run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))] == [
        own_project.pk
    ]
    assert run_store.fetch_trace(other_workspace.pk, trace_run_id(TRACE)) == []


def test_a_span_with_langsmith_ids_keeps_them(exporter: Exporter, workspace: Workspace) -> None:
    run_id = "01a20171-9bbc-7410-8fb3-091b2b9c3c9e"
    # Of a clock that is an hour behind that of the span.
    segment_time = datetime.fromtimestamp(BEGIN / SECOND, UTC) - timedelta(hours=1)
    dotted_order = format_segment(segment_time, UUID(run_id))
    attributes = {
        "langsmith.trace.id": run_id,
        "langsmith.span.id": run_id,
        "langsmith.span.dotted_order": dotted_order,
    }

    exporter.send_spans(span(attributes=attributes))

    run = run_store.get(workspace.pk, UUID(run_id))
    assert run is not None
    assert run.row.dotted_order == dotted_order


def test_the_root_run_of_the_javascript_sdk_has_the_id_of_its_span(
    exporter: Exporter, workspace: Workspace
) -> None:
    """A child is attached to its LangSmith parent even if a span between them is not exported."""
    traced = {"langsmith.traceable": "true"}
    parent = {"langsmith.span.parent_id": "00000000-0000-0000-0000-000000000001"}
    exporter.send_spans(span(3, 2, at=2, name="child", attributes={**traced, **parent}))
    exporter.send_spans(span(1, 9, name="root", attributes={**traced, "langsmith.is_root": True}))

    root_id = UUID(int=1)
    runs = run_store.fetch_trace(workspace.pk, root_id)
    assert [(row.name, row.depth, row.trace_id) for row in runs] == [
        ("root", 0, root_id),
        ("child", 1, root_id),
    ]
    assert runs[0].id == runs[1].parent_run_id == root_id
    assert count_stored_runs() == 2


@pytest.mark.parametrize("signal", ["metrics", "logs"])
@pytest.mark.parametrize("content_type", ["application/x-protobuf", "application/json"])
def test_other_signals_are_accepted_and_discarded(
    exporter: Exporter, signal: str, content_type: str
) -> None:
    path = f"/otel/v1/{signal}"
    body = b"{}" if content_type == "application/json" else b""

    response = exporter.send(body, content_type, path)

    assert (response.status_code, response.content) == (200, body)
    assert response["Content-Type"] == content_type
    assert Client().post(path, b"", content_type=content_type).status_code == 401
    assert exporter.client.get("/info").json()["otlp_signals"] == {
        "traces": "stored",
        "metrics": "discarded",
        "logs": "discarded",
    }
    assert count_stored_runs() == 0


NESTED_TEXT = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    ("attributes", "is_stored"),
    [
        ({f"gen_ai.prompt.{'9' * 5000}.content": "hi"}, True),
        ({"gen_ai.usage.input_token_details": "{[]: 1}"}, True),
        ({"gen_ai.usage.input_token_details": "{'cache_read': ...}"}, True),
        ({"gen_ai.usage.input_token_details": "{'cache_read': '\\ud800'}"}, True),
        ({"gen_ai.usage.input_token_details": "{(1, 2): 1}"}, True),
        ({f"gen_ai.prompt.0{'.a' * 2000}": "hi"}, False),
        ({"ai.prompt.messages": NESTED_TEXT}, False),
        ({"ai.value": NESTED_TEXT}, False),
        ({"ai.response.text": NESTED_TEXT}, False),
        ({"langsmith.metadata.a": NESTED_TEXT}, False),
        (
            {
                "gen_ai.input.messages": '[{"parts": [{"type": "tool_call", "arguments": '
                f"{NESTED_TEXT[700:1300]}}}]}}]"
            },
            False,
        ),
    ],
    ids=[
        *("index", "unhashable", "ellipsis", "surrogate", "tuple", "name", "messages", "value"),
        *("answer", "metadata", "arguments"),
    ],
)
def test_attributes_without_a_json_form_do_not_stop_the_other_spans(
    exporter: Exporter, workspace: Workspace, attributes: dict[str, Any], *, is_stored: bool
) -> None:
    odd_span, other_span = (
        span(2, 1, name="odd", at=1, attributes=attributes),
        span(1, name="other"),
    )

    response = exporter.send_spans(odd_span, other_span)

    answer = ExportTraceServiceResponse.FromString(response.content)
    assert response.status_code == 200
    assert answer.partial_success.rejected_spans == (0 if is_stored else 1)
    assert sorted(run_names(workspace)) == (["odd", "other"] if is_stored else ["other"])


def test_json_span_with_a_list_as_key_does_not_stop_the_other_spans(
    exporter: Exporter, workspace: Workspace
) -> None:
    request = to_otlp_json(export(span(1, name="good"), span(2), span(3), span(4)))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    bad_pairs = [{"key": ["a"], "value": {"stringValue": "b"}}]
    spans[1]["attributes"] = bad_pairs
    spans[2]["events"] = [{"attributes": bad_pairs}]
    spans[3]["attributes"] = [{"key": "a", "value": {"kvlistValue": {"values": bad_pairs}}}]

    response = exporter.send(json.dumps(request).encode(), JSON)

    assert response.status_code == 200
    assert response.json()["partialSuccess"]["rejectedSpans"] == "3"
    assert run_names(workspace) == ["good"]
