"""POST /otel/v1/traces as exporters call it."""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64decode
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
from apps.tracing.models import Project
from tests.factories.api_keys import key_for
from tests.factories.spans import TRACE, event, export, span
from tests.factories.tracing import rows
from tests.ingest.otlp.conftest import Exporter

JSON = "application/json"


def hexed(value: Any) -> Any:
    """OTLP's JSON from protobuf's: ids in hexadecimal, not in base64."""
    if isinstance(value, list):
        return [hexed(one) for one in value]
    if not isinstance(value, dict):
        return value
    converted = {key: hexed(one) for key, one in value.items()}
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in converted:
            converted[name] = b64decode(converted[name]).hex()
    return converted


def as_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    message: dict[str, Any] = hexed(MessageToDict(request))
    return message


def names(workspace: Workspace) -> list[str]:
    return [row.name for row in run_store.trace(workspace.pk, trace_run_id(TRACE))]


def test_without_a_key_nothing_is_stored(db: None) -> None:
    answer = Client().generic(
        "POST", "/otel/v1/traces", export(span()).SerializeToString(), "application/x-protobuf"
    )

    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/x-protobuf"
    assert rows() == 0


def test_a_key_that_may_not_ingest(workspace: Workspace) -> None:
    answer = Exporter(key_for(workspace, "read")).spans(span())

    assert answer.status_code == 403
    assert rows() == 0


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
def test_protobuf(exporter: Exporter, workspace: Workspace, prefix: str) -> None:
    body = export(span(1, name="root"), span(2, 1, at=1, name="child")).SerializeToString()

    answer = exporter.send(body, path=f"{prefix}/otel/v1/traces")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer["Content-Type"] == "application/x-protobuf"
    assert names(workspace) == ["root", "child"]


def test_json(exporter: Exporter, workspace: Workspace) -> None:
    request = export(
        span(1, name="root", says={"count": 2**62, "flag": True, "list": ["a", 1.5], "none": None}),
        span(2, 1, at=1, name="child", error="broken", events=[event("new_token", at=1.5)]),
    )

    answer = exporter.send(json.dumps(as_json(request)).encode(), JSON)

    assert (answer.status_code, answer.content, answer["Content-Type"]) == (200, b"{}", JSON)
    root, child = run_store.trace(workspace.pk, trace_run_id(TRACE))
    assert (root.name, child.name, child.status) == ("root", "child", "error")
    assert root.metadata["count"] == 2**62
    assert child.first_token_time is not None


def test_both_encodings_give_the_same_run(exporter: Exporter, workspace: Workspace) -> None:
    one = export(span(1, says={"input.value": '{"a": 1}', "n": 1, "f": 2.0, "b": b"\x00\xff"}))
    exporter.send(one.SerializeToString(), langsmith_project="protobuf")
    exporter.send(json.dumps(as_json(one)).encode(), JSON, langsmith_project="json")

    projects = Project.objects.for_workspace(workspace).filter(name__in=["protobuf", "json"])
    runs = [run_store.get(workspace.pk, trace_run_id(TRACE), project_id=one.pk) for one in projects]
    first, second = [
        {payload: run.json(payload) for payload in run.payloads} for run in runs if run
    ]
    assert first == second
    assert len(first) == 2


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.compress),
        ("identity", bytes),
    ],
)
def test_encodings_of_the_body(
    exporter: Exporter, workspace: Workspace, encoding: str, pack: Any
) -> None:
    body = pack(export(span(name=encoding)).SerializeToString())

    assert exporter.send(body, content_encoding=encoding).status_code == 200
    assert names(workspace) == [encoding]


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status"),
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
def test_what_cannot_be_decoded_is_final(
    exporter: Exporter, body: bytes, kind: str, headers: dict[str, str], status: int
) -> None:
    answer = exporter.send(body, kind, **headers)

    assert answer.status_code == status
    if kind == JSON:
        assert answer.json()["code"] == "bad_body"
    else:
        # A google.rpc.Status: field 2 is its message.
        assert answer["Content-Type"] == "application/x-protobuf"
        assert answer.content[0] == 0x12
    assert rows() == 0


def test_an_empty_request_is_a_success(exporter: Exporter) -> None:
    assert exporter.send(b"").status_code == 200
    assert exporter.send(b"{}", JSON).content == b"{}"


def test_a_bad_span_does_not_take_the_others_along(
    exporter: Exporter, workspace: Workspace
) -> None:
    good = span(1, name="good")
    bad = [
        span(2, trace=b"short"),
        span(3, trace=bytes(16)),
        span(4, span_id=b""),
        span(5, parent_span_id=b"abc"),
        span(6, start_time_unix_nano=0, end_time_unix_nano=0),
        span(7, at=10 * 86_400),
    ]

    answer = exporter.spans(good, *bad)

    response = ExportTraceServiceResponse.FromString(answer.content)
    assert answer.status_code == 200
    assert response.partial_success.rejected_spans == 6
    assert "The trace id must have 16 bytes" in response.partial_success.error_message
    assert names(workspace) == ["good"]


def test_a_bad_span_in_json_is_told_in_json(exporter: Exporter, workspace: Workspace) -> None:
    request = as_json(export(span(1, name="good"), span(2), span(3)))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[1]["traceId"] = "nonsense"
    spans[2]["startTimeUnixNano"] = {"no": "number"}

    answer = exporter.send(json.dumps(request).encode(), JSON)

    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert names(workspace) == ["good"]


def test_nothing_but_bad_spans_is_a_bad_request(exporter: Exporter) -> None:
    answer = exporter.spans(span(trace=b"short"))

    assert answer.status_code == 400
    assert rows() == 0


@pytest.mark.parametrize(
    ("named", "project"),
    [
        ({"span": "a", "resource": "b", "header": "c"}, "a"),
        ({"resource": "b", "header": "c"}, "b"),
        ({"header": "c", "other": "d"}, "c"),
        ({"other": "d"}, "d"),
        ({}, "default"),
    ],
)
def test_which_project_a_span_goes_to(
    exporter: Exporter, workspace: Workspace, named: dict[str, str], project: str
) -> None:
    says = {"langsmith.trace.session_name": named["span"]} if "span" in named else {}
    places = {"resource": "langsmith.project.name", "other": "openinference.project.name"}
    resource = {name: named[place] for place, name in places.items() if place in named}
    headers = {"langsmith_project": named["header"]} if "header" in named else {}

    exporter.send(export(span(says=says), resource=resource).SerializeToString(), **headers)

    (row,) = run_store.trace(workspace.pk, trace_run_id(TRACE))
    assert Project.objects.for_workspace(workspace).get(pk=row.project_id).name == project


def test_a_project_by_its_id_and_one_that_is_none(
    exporter: Exporter, workspace: Workspace, stranger: Workspace
) -> None:
    own = Project(workspace=workspace, name="by id")
    own.save()
    foreign = Project(workspace=stranger, name="foreign")
    foreign.save()

    answer = exporter.spans(
        span(1, says={"langsmith.trace.session_id": str(own.pk)}),
        span(2, 1, at=1, says={"langsmith.trace.session_id": str(foreign.pk)}),
    )

    response = ExportTraceServiceResponse.FromString(answer.content)
    assert response.partial_success.rejected_spans == 1
    assert [row.project_id for row in run_store.trace(workspace.pk, trace_run_id(TRACE))] == [
        own.pk
    ]
    assert run_store.trace(stranger.pk, trace_run_id(TRACE)) == []


def test_a_span_that_brings_its_runs_ids_and_place(
    exporter: Exporter, workspace: Workspace
) -> None:
    run_id = "01a20171-9bbc-7410-8fb3-091b2b9c3c9e"
    dotted_order = f"20260102T030405000006Z{run_id}"
    says = {
        "langsmith.trace.id": run_id,
        "langsmith.span.id": run_id,
        "langsmith.span.dotted_order": dotted_order,
    }

    exporter.spans(span(says=says))

    run = run_store.get(workspace.pk, UUID(run_id))
    assert run is not None
    assert run.row.dotted_order == dotted_order


def test_the_javascript_sdk_finds_its_root_by_the_spans_id(
    exporter: Exporter, workspace: Workspace
) -> None:
    """Its root's run has the span's id; a span it leaves out between two is not missed."""
    traced = {"langsmith.traceable": "true"}
    parent = {"langsmith.span.parent_id": "00000000-0000-0000-0000-000000000001"}
    exporter.spans(span(3, 2, at=2, name="child", says={**traced, **parent}))
    exporter.spans(span(1, 9, name="root", says={**traced, "langsmith.is_root": True}))

    root_id = UUID(int=1)
    runs = run_store.trace(workspace.pk, root_id)
    assert [(row.name, row.depth, row.trace_id) for row in runs] == [
        ("root", 0, root_id),
        ("child", 1, root_id),
    ]
    assert runs[0].id == runs[1].parent_run_id == root_id
    assert rows() == 2
