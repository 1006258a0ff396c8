"""Requests of the Java client: paths with and without a prefix, multipart, OpenTelemetry."""

from __future__ import annotations

import json
import uuid

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.factories.spans import export
from tests.tracing.sdk.raw_clients import JAVA, build_run, encode_multipart, open_client, read_json

pytestmark = pytest.mark.xdist_group("sdk-java")
JSON = "application/json; length={length}"


@pytest.fixture(scope="module")
def java(live):
    with open_client(live, JAVA) as client:
        yield client


@pytest.fixture
def project():
    return f"java {uuid.uuid4()}"


def read_run(java, run_id):
    return read_json(java.get(f"/runs/{run_id}"))


def test_the_info_endpoint_lists_the_capabilities_of_the_server(java):
    info = read_json(java.get("/info"))

    assert info["batch_ingest_config"]["use_multipart_endpoint"] is True
    assert info["instance_flags"]["ch_query_enabled"] is True


@pytest.mark.parametrize("filename", [None, "blob", "r.json"])
def test_multipart_parts_declare_their_length_and_may_have_a_file_name(java, project, filename):
    run = build_run(project, name="größer 退款")
    large = {name: run.pop(name) for name in ("inputs",)}
    outputs, extra = {"a": "ü" * 100}, {"metadata": {"thread_id": "t"}, "runtime": {"sdk": "java"}}
    picture = b"\x89PNG\r\n\x00--"
    body, content_type = encode_multipart(
        # A field may come before the run that it belongs to.
        (f"post.{run['id']}.outputs", outputs, JSON, filename),
        (f"post.{run['id']}", run, JSON, filename),
        (f"post.{run['id']}.inputs", large["inputs"], JSON, filename),
        (f"post.{run['id']}.extra", extra, JSON, filename),
        (
            f"post.{run['id']}.events",
            [{"name": "new_token", "time": run["end_time"]}],
            JSON,
            None,
        ),
        (f"post.{run['id']}.error", "it broke", JSON, filename),
        (f"attachment.{run['id']}.picture", picture, "image/png; length={length}", "p.png"),
    )

    response = java.post("/runs/multipart", content=body, headers={"Content-Type": content_type})

    assert isinstance(read_json(response, 202), dict)
    stored_run = read_run(java, run["id"])
    assert (stored_run["name"], stored_run["error"], stored_run["status"]) == (
        "größer 退款",
        "it broke",
        "error",
    )
    assert (stored_run["inputs"], stored_run["outputs"], stored_run["thread_id"]) == (
        {"q": "why?"},
        outputs,
        "t",
    )
    link = stored_run["s3_urls"]["attachment.picture"]
    assert link["mime_type"] == "image/png"
    assert java.get(link["presigned_url"], headers={"X-Api-Key": ""}).content == picture


def test_a_patch_may_come_before_its_post(java, project):
    run = build_run(project, outputs=None, end_time=None)
    patch = {
        **{name: run[name] for name in ("id", "trace_id", "dotted_order", "session_name")},
        "outputs": {"a": 1},
        "end_time": build_run(project)["end_time"],
    }
    for operation, fields in (("patch", patch), ("post", run)):
        body, content_type = encode_multipart((f"{operation}.{run['id']}", fields, JSON, None))
        read_json(
            java.post("/runs/multipart", content=body, headers={"Content-Type": content_type}), 202
        )

    stored_run = read_run(java, run["id"])

    assert (stored_run["status"], stored_run["outputs"], stored_run["inputs"]) == (
        "success",
        {"a": 1},
        {"q": "why?"},
    )


def test_a_part_with_a_wrong_length_is_rejected(java, project):
    run = build_run(project)
    body, content_type = encode_multipart(
        (f"post.{run['id']}", run, "application/json; length=3", None)
    )

    response = java.post("/runs/multipart", content=body, headers={"Content-Type": content_type})

    assert isinstance(read_json(response, 422)["detail"], str)
    assert java.get(f"/runs/{run['id']}").status_code == 404


def test_a_chunked_body_without_length_is_accepted(java, project):
    run = build_run(project)
    body, content_type = encode_multipart((f"post.{run['id']}", run, JSON, None))
    pieces = (body[offset : offset + 100] for offset in range(0, len(body), 100))

    read_json(
        java.post("/runs/multipart", content=pieces, headers={"Content-Type": content_type}), 202
    )

    assert read_run(java, run["id"])["name"] == "agent"


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_path_works_with_and_without_prefix_and_trailing_slash(java, project, prefix, slash):
    run = build_run(project)

    response = java.post(f"{prefix}/runs/batch{slash}", json={"post": [run]})

    read_json(response, 202)
    query = {"id": [run["id"]]}
    runs = read_json(java.post(f"{prefix}/runs/query{slash}", json=query))["runs"]
    assert [row["id"] for row in runs] == [run["id"]]


@pytest.mark.parametrize("prefix", ["/v2", "/api/v2"])
def test_the_v2_routes_have_two_prefixes(java, project, prefix):
    run = build_run(project)
    read_json(java.post("/runs/batch", json={"post": [run]}), 202)
    session_id = read_run(java, run["id"])["session_id"]

    page = read_json(java.post(f"{prefix}/runs/query", json={"project_ids": [session_id]}))

    assert page["items"] == [{"id": run["id"]}]


def test_otlp_spans_name_their_project_and_thread(java, project):
    span = Span(
        trace_id=uuid.uuid4().bytes,
        span_id=b"\x00" * 7 + b"\x01",
        name="ask",
        start_time_unix_nano=1_767_225_600_000_000_000,
        end_time_unix_nano=1_767_225_601_000_000_000,
    )
    messages = [{"role": "user", "parts": [{"type": "text", "content": "why?"}]}]
    for key, value in (
        ("gen_ai.operation.name", "chat"),
        ("session.id", "t-9"),
        ("gen_ai.input.messages", json.dumps(messages)),
        ("langsmith.trace.name", "chat"),
    ):
        span.attributes.add(key=key).value.string_value = value
    body = export(span, resource={"langsmith.project.name": project}).SerializeToString()

    response = java.post(
        "/otel/v1/traces", content=body, headers={"Content-Type": "application/x-protobuf"}
    )

    assert response.status_code == 200, response.text
    assert ExportTraceServiceResponse.FromString(response.content) == ExportTraceServiceResponse()
    stored_run = read_run(java, uuid.UUID(bytes=span.trace_id))
    assert (stored_run["name"], stored_run["run_type"], stored_run["thread_id"]) == (
        "chat",
        "llm",
        "t-9",
    )
    assert stored_run["inputs"]["messages"][0]["role"] == "user"
    (project_row,) = read_json(java.get("/sessions", params={"name": project}))
    assert project_row["id"] == stored_run["session_id"]
