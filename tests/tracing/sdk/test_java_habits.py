"""What the Java client sends: paths with and without a prefix, its multipart, its OpenTelemetry."""

from __future__ import annotations

import json
import uuid

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.factories.spans import export
from tests.tracing.sdk.raw import JAVA, multipart, run, speaking, told

pytestmark = pytest.mark.xdist_group("sdk-java")
JSON = "application/json; length={length}"


@pytest.fixture(scope="module")
def java(live):
    with speaking(live, JAVA) as client:
        yield client


@pytest.fixture
def project():
    return f"java {uuid.uuid4()}"


def read(java, run_id):
    return told(java.get(f"/runs/{run_id}"))


def test_it_asks_first_what_the_server_can_do(java):
    info = told(java.get("/info"))

    assert info["batch_ingest_config"]["use_multipart_endpoint"] is True
    assert info["instance_flags"]["ch_query_enabled"] is True


@pytest.mark.parametrize("filename", [None, "blob", "r.json"])
def test_parts_tell_their_length_and_may_be_files(java, project, filename):
    made = run(project, name="größer 退款")
    large = {name: made.pop(name) for name in ("inputs",)}
    outputs, extra = {"a": "ü" * 100}, {"metadata": {"thread_id": "t"}, "runtime": {"sdk": "java"}}
    picture = b"\x89PNG\r\n\x00--"
    body, kind = multipart(
        # A field may come before the run that it is of.
        (f"post.{made['id']}.outputs", outputs, JSON, filename),
        (f"post.{made['id']}", made, JSON, filename),
        (f"post.{made['id']}.inputs", large["inputs"], JSON, filename),
        (f"post.{made['id']}.extra", extra, JSON, filename),
        (
            f"post.{made['id']}.events",
            [{"name": "new_token", "time": made["end_time"]}],
            JSON,
            None,
        ),
        (f"post.{made['id']}.error", "it broke", JSON, filename),
        (f"attachment.{made['id']}.picture", picture, "image/png; length={length}", "p.png"),
    )

    answer = java.post("/runs/multipart", content=body, headers={"Content-Type": kind})

    assert isinstance(told(answer, 202), dict)
    found = read(java, made["id"])
    assert (found["name"], found["error"], found["status"]) == ("größer 退款", "it broke", "error")
    assert (found["inputs"], found["outputs"], found["thread_id"]) == ({"q": "why?"}, outputs, "t")
    link = found["s3_urls"]["attachment.picture"]
    assert link["mime_type"] == "image/png"
    assert java.get(link["presigned_url"], headers={"X-Api-Key": ""}).content == picture


def test_a_patch_may_come_before_its_post(java, project):
    made = run(project, outputs=None, end_time=None)
    patch = {
        **{name: made[name] for name in ("id", "trace_id", "dotted_order", "session_name")},
        "outputs": {"a": 1},
        "end_time": run(project)["end_time"],
    }
    for operation, one in (("patch", patch), ("post", made)):
        body, kind = multipart((f"{operation}.{made['id']}", one, JSON, None))
        told(java.post("/runs/multipart", content=body, headers={"Content-Type": kind}), 202)

    found = read(java, made["id"])

    assert (found["status"], found["outputs"], found["inputs"]) == (
        "success",
        {"a": 1},
        {"q": "why?"},
    )


def test_a_length_that_is_wrong_is_refused_with_a_reason(java, project):
    made = run(project)
    body, kind = multipart((f"post.{made['id']}", made, "application/json; length=3", None))

    answer = java.post("/runs/multipart", content=body, headers={"Content-Type": kind})

    assert isinstance(told(answer, 422)["detail"], str)
    assert java.get(f"/runs/{made['id']}").status_code == 404


def test_chunked_bodies_have_no_length(java, project):
    made = run(project)
    body, kind = multipart((f"post.{made['id']}", made, JSON, None))
    pieces = (body[at : at + 100] for at in range(0, len(body), 100))

    told(java.post("/runs/multipart", content=pieces, headers={"Content-Type": kind}), 202)

    assert read(java, made["id"])["name"] == "agent"


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_path_is_the_same_with_and_without_prefix_and_slash(java, project, prefix, slash):
    made = run(project)

    answer = java.post(f"{prefix}/runs/batch{slash}", json={"post": [made]})

    told(answer, 202)
    query = {"id": [made["id"]]}
    found = told(java.post(f"{prefix}/runs/query{slash}", json=query))["runs"]
    assert [one["id"] for one in found] == [made["id"]]


@pytest.mark.parametrize("prefix", ["/v2", "/api/v2"])
def test_the_second_version_has_two_prefixes(java, project, prefix):
    made = run(project)
    told(java.post("/runs/batch", json={"post": [made]}), 202)
    session_id = read(java, made["id"])["session_id"]

    page = told(java.post(f"{prefix}/runs/query", json={"project_ids": [session_id]}))

    assert page["items"] == [{"id": made["id"]}]


def test_its_spans_name_their_project_and_session(java, project):
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
        ("langsmith.trace.name", "asked"),
    ):
        span.attributes.add(key=key).value.string_value = value
    body = export(span, resource={"langsmith.project.name": project}).SerializeToString()

    answer = java.post(
        "/otel/v1/traces", content=body, headers={"Content-Type": "application/x-protobuf"}
    )

    assert answer.status_code == 200, answer.text
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    found = read(java, uuid.UUID(bytes=span.trace_id))
    assert (found["name"], found["run_type"], found["thread_id"]) == ("asked", "llm", "t-9")
    assert found["inputs"]["messages"][0]["role"] == "user"
    (there,) = told(java.get("/sessions", params={"name": project}))
    assert there["id"] == found["session_id"]
