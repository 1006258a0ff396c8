"""No body causes a server error, and the valid spans of a request are stored."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.ingest.errors import BadBody
from apps.ingest.otlp import encoding
from apps.ingest.otlp.batch_assembly import build_request
from apps.ingest.otlp.spans import trace_run_id
from apps.ingest.services.ingest_runs import ingest
from apps.organizations.models import Workspace
from apps.trace_store import run_store
from tests.examples import fuzz_settings
from tests.factories.organizations import WorkspaceFactory
from tests.factories.spans import TRACE, event, export, span
from tests.ingest.otlp.test_endpoint import JSON, Exporter, to_otlp_json

pytestmark = pytest.mark.exhaustive

RICH = export(
    span(
        1,
        attributes={
            "gen_ai.prompt.0.content": "hi",
            "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text"}]}]',
            "metadata": '{"a": 1}',
            "tag.tags": ["a"],
            "n": 1,
            "f": 0.5,
            "k": {"a": [1, None]},
        },
        events=[event("exception", {"exception.message": "no"}), event("gen_ai.choice")],
    ),
    span(2, 1, at=1),
)
PROTOBUF_BODY, JSON_BODY = RICH.SerializeToString(), to_otlp_json(RICH)
DATABASE_SETTINGS = fuzz_settings(20)
PURE_SETTINGS = fuzz_settings(100)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            *('{"a": [', "[[1]]", '[{"role": 1}]', '{"messages": 3}', "\x00", "\ud800", "9" * 400),
            *(
                '[{"parts": [3, {"type": "tool_call", "arguments": {}}]}]',
                "null",
                '"text"',
                "[null]",
                "[" * 300 + "]" * 300,
                "[" * 1000 + "]" * 1000,
                "{[]: 1}",
                "{'a': ...}",
            ),
        ]
    )
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3)
)


def decode_and_map(body: bytes, media_type: str) -> None:
    """Decode and map all spans; only `BadBody` may be raised."""
    try:
        decoded = encoding.decode_spans(body, media_type)
    except BadBody:
        return
    build_request(decoded, project=None)


@PURE_SETTINGS
@given(body=st.binary(max_size=300))
def test_any_bytes_are_decoded_or_rejected_as_protobuf(body: bytes) -> None:
    decode_and_map(body, encoding.PROTOBUF)


@PURE_SETTINGS
@given(replacements=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8))
def test_protobuf_with_changed_bytes_is_decoded_or_rejected(
    replacements: list[tuple[int, int]],
) -> None:
    body = bytearray(PROTOBUF_BODY)
    for offset, byte in replacements:
        body[offset % len(body)] = byte

    decode_and_map(bytes(body), encoding.PROTOBUF)


@PURE_SETTINGS
@given(
    body=st.binary(max_size=100) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "replace"))
)
def test_any_bytes_are_decoded_or_rejected_as_json(body: bytes) -> None:
    decode_and_map(body, encoding.JSON)


def mutate(draw: st.DrawFn, value: Any) -> Any:
    """Return the value with a random change inside."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 9)):
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutate(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], mutate(draw, value[index]), *value[index + 1 :]]
    return draw(values)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    body = JSON_BODY
    for _ in range(draw(st.integers(1, 4))):
        body = mutate(draw, body)
    return json.dumps(body).encode("utf-8", "replace")


@PURE_SETTINGS
@given(body=bodies())
def test_json_with_changed_values_is_decoded_or_rejected(body: bytes) -> None:
    decode_and_map(body, encoding.JSON)


NAMES = sorted(
    {pair.key for pair in RICH.resource_spans[0].scope_spans[0].spans[0].attributes}
    | {
        *(
            "gen_ai.prompt",
            "gen_ai.completion",
            "input.value",
            "output.value",
            "events",
            "ai.prompt",
        ),
        *("gen_ai.prompt.x.y", "gen_ai.prompt.0", "gen_ai.prompt.0.role", "gen_ai.prompt.-1.a"),
        *("llm.input_messages.0.message.contents.0.message_content", "llm.tools.0.tool"),
        *("gen_ai.output.messages", "gen_ai.system_instructions", "pydantic_ai.all_messages"),
        *("llm.invocation_parameters", "langsmith.usage_metadata", "langsmith.metadata.a"),
        *("gen_ai.usage.input_tokens", "gen_ai.usage.input_token_details", "langsmith.span.tags"),
        *("retrieval.documents.0.document", "retrieval.documents.0.document.metadata", "tag.tags"),
        *("embedding.embeddings.0.embedding", "session.id", "langsmith.trace.session_id"),
        *("langsmith.span.id", "langsmith.span.dotted_order", "langsmith.span.parent_id"),
        *("langsmith.traceable_parent_otel_span_id", "langsmith.is_root", "langsmith.span.kind"),
        *("langsmith.reference_example_id", "ttft_ms", "gen_ai.request.model", "llm.request.type"),
        *(
            "llm.prompts",
            "ai.value",
            "ai.values",
            "ai.embedding",
            "ai.embeddings",
            "ai.response.text",
            "gen_ai.input.messages",
            "gen_ai.usage.output_token_details",
            "gen_ai.prompt." + "9" * 5000 + ".content",
            "gen_ai.prompt.0" + ".a" * 2000,
            "all_messages_events",
            "gen_ai.tool.definitions",
            "langsmith.span.runtime",
        ),
    }
)


def encode_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(max(-(2**63), min(value, 2**63 - 1)))}
        case float():
            return {"doubleValue": str(value)}
        case list():
            return {"arrayValue": {"values": [encode_value(item) for item in value]}}
        case dict():
            pairs = [{"key": key, "value": encode_value(item)} for key, item in value.items()]
            return {"kvlistValue": {"values": pairs}}
        case None:
            return {}
    return {"stringValue": value}


def encode_body_with_attributes(attributes: dict[str, Any]) -> bytes:
    body = json.loads(json.dumps(JSON_BODY))
    first_span = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    first_span["attributes"] = [
        {"key": key, "value": encode_value(value)} for key, value in attributes.items()
    ]
    return json.dumps(body).encode("utf-8", "replace")


@PURE_SETTINGS
@given(
    attributes=st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=10), values, max_size=6)
)
def test_any_values_of_known_attributes_are_mapped_or_rejected(attributes: dict[str, Any]) -> None:
    decoded = encoding.decode_spans(encode_body_with_attributes(attributes), encoding.JSON)

    request = build_request(decoded, project=None)

    span_count = len(decoded.spans) + len(decoded.undecodable)
    assert len(request.operations) + len(request.rejected) == span_count


@pytest.mark.django_db
@DATABASE_SETTINGS
@given(attributes=st.dictionaries(st.sampled_from(NAMES), values, max_size=5))
def test_mapped_spans_are_stored_with_the_others_of_their_request(
    attributes: dict[str, Any],
) -> None:
    workspace: Workspace = WorkspaceFactory()
    decoded = encoding.decode_spans(encode_body_with_attributes(attributes), encoding.JSON)

    result = ingest(workspace.pk, build_request(decoded, project=None))

    stored_ids = {row.id for row in run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))}
    span_run_id = attributes.get("langsmith.span.id")
    assert len(result.rejected) <= 1
    assert stored_ids or isinstance(span_run_id, UUID | str)


@DATABASE_SETTINGS
@given(
    body=bodies() | st.binary(max_size=60),
    content_type=st.sampled_from([JSON, "application/x-protobuf"]),
)
def test_the_endpoint_has_no_server_error(
    exporter: Exporter, body: bytes, content_type: str
) -> None:
    assert exporter.send(body, content_type).status_code in {200, 400, 415}


@pytest.mark.parametrize("depth", [90, 500, 5000])
def test_a_deeply_nested_value_is_stored_or_rejected(exporter: Exporter, depth: int) -> None:
    value = '{"arrayValue": {"values": [' * depth + "{}" + "]}}" * depth
    span_fields = {
        "traceId": TRACE.hex(),
        "spanId": "01" * 8,
        "startTimeUnixNano": "1700000000000000000",
    }
    attribute = f'"attributes": [{{"key": "a", "value": {value}}}]'
    spans = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span_fields]}]}]})
    body = spans.replace('"traceId"', f'{attribute}, "traceId"')

    assert exporter.send(body.encode(), JSON).status_code in {200, 400}
