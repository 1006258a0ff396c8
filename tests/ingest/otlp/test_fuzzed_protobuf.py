"""Valid protobuf that no exporter sends: ids of any length, any times, kinds and depths.

No span causes a server error, and a valid span in the same request is stored.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from apps.organizations.models import Workspace
from apps.trace_store import run_store
from tests.examples import fuzz_settings
from tests.factories.spans import SECOND, export, span
from tests.ingest.otlp.conftest import Exporter
from tests.ingest.otlp.test_fuzzing import NAMES
from tests.tracing.fuzzing import DAMAGES, damage

pytestmark = [
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.exhaustive,
]

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["\x00", "a\x00b", "[[[", '{"a": 1}', "null", "9" * 400, "2026-01-01T00:00:00Z", "x" * 500]
)
TIMES = st.integers(0, 2**64 - 1) | st.sampled_from(
    [0, 1, 2**63 - 1, 2**63, 2**64 - 1, SECOND, 4_000_000_000 * SECOND]
)
IDS = st.binary(max_size=20) | st.sampled_from([b"", b"\0" * 8, b"\0" * 16, b"\xff" * 16])
VALUES = st.recursive(
    st.just(AnyValue())
    | TEXTS.map(lambda value: AnyValue(string_value=value))
    | st.booleans().map(lambda value: AnyValue(bool_value=value))
    | st.integers(-(2**63), 2**63 - 1).map(lambda value: AnyValue(int_value=value))
    | st.floats().map(lambda value: AnyValue(double_value=value))
    | st.binary(max_size=12).map(lambda value: AnyValue(bytes_value=value)),
    lambda inner: (
        st.lists(inner, max_size=3).map(
            lambda items: AnyValue(array_value=ArrayValue(values=items))
        )
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda items: AnyValue(
                kvlist_value=KeyValueList(
                    values=[KeyValue(key=key, value=value) for key, value in items]
                )
            )
        )
    ),
    max_leaves=8,
)
# A name may occur twice.
ATTRIBUTES = st.lists(
    st.builds(KeyValue, key=st.sampled_from(NAMES) | TEXTS, value=VALUES), max_size=6
)
NUMBERS = st.integers(0, 2**32 - 1)
SPANS = st.builds(
    Span,
    trace_id=IDS,
    span_id=IDS,
    parent_span_id=IDS,
    name=TEXTS,
    trace_state=TEXTS,
    kind=st.integers(-(2**31), 2**31 - 1),
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=ATTRIBUTES,
    events=st.lists(
        st.builds(Span.Event, name=TEXTS, time_unix_nano=TIMES, attributes=ATTRIBUTES), max_size=2
    ),
    links=st.lists(
        st.builds(Span.Link, trace_id=IDS, span_id=IDS, attributes=ATTRIBUTES), max_size=2
    ),
    status=st.builds(Status, code=st.integers(-5, 2**31 - 1), message=TEXTS),
    dropped_attributes_count=NUMBERS,
)


def build_resource_spans(spans: list[Span], resource_attributes: list[KeyValue]) -> ResourceSpans:
    resource_spans = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    resource_spans.resource.attributes.extend(resource_attributes)
    return resource_spans


@fuzz_settings(30)
@given(
    spans=st.lists(SPANS, min_size=1, max_size=3),
    resource_attributes=ATTRIBUTES,
    is_before=st.booleans(),
)
def test_a_valid_span_next_to_fuzzed_spans_is_stored(
    exporter: Exporter,
    workspace: Workspace,
    spans: list[Span],
    resource_attributes: list[KeyValue],
    *,
    is_before: bool,
) -> None:
    trace_id = uuid4()
    request = export(span(1, trace=trace_id.bytes))
    fuzzed_spans = build_resource_spans(spans, resource_attributes)
    if is_before:
        request.resource_spans.insert(0, fuzzed_spans)
    else:
        request.resource_spans.append(fuzzed_spans)

    response = exporter.send(request.SerializeToString())

    assert response.status_code == 200, response.content
    assert [row.id for row in run_store.fetch_trace(workspace.pk, trace_id)] == [trace_id]


@fuzz_settings(30)
@given(damages=DAMAGES, spans=st.lists(SPANS, min_size=1, max_size=2))
def test_a_damaged_request_is_no_server_error(
    exporter: Exporter, damages: Any, spans: list[Span]
) -> None:
    body = export(*spans, span(1)).SerializeToString()

    for encoding in ("", "gzip"):
        compressed = gzip.compress(body, mtime=0) if encoding else body
        headers = {"Content_Encoding": encoding} if encoding else {}
        response = exporter.send(damage(compressed, damages), **headers)
        assert response.status_code in {200, 400, 413, 415}, response.content


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a protobuf field of bytes."""
    return bytes([number << 3 | 2]) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    return (
        bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _encode_varint(value >> 7)
    )


@pytest.mark.parametrize("depth", [20, 45, 95, 400])
@pytest.mark.parametrize("container", ["list", "object"])
def test_deeply_nested_values_are_stored_or_rejected(
    exporter: Exporter, workspace: Workspace, container: str, depth: int
) -> None:
    # Encoded by hand, because the library builds no message that is nested so deeply.
    wrappers: dict[str, Callable[[bytes], bytes]] = {
        "list": lambda inner: encode_field(5, encode_field(1, inner)),
        "object": lambda inner: encode_field(
            6, encode_field(1, encode_field(1, b"a") + encode_field(2, inner))
        ),
    }
    value = AnyValue(string_value="x").SerializeToString()
    for _ in range(depth):
        value = wrappers[container](value)
    trace_id: UUID = uuid4()
    span_bytes = span(1, trace=trace_id.bytes).SerializeToString()
    span_bytes += encode_field(9, encode_field(1, b"input.value") + encode_field(2, value))

    response = exporter.send(encode_field(1, encode_field(2, encode_field(2, span_bytes))))

    # The protobuf library reads up to a hundred levels.
    is_stored = bool(run_store.fetch_trace(workspace.pk, trace_id))
    assert (response.status_code, is_stored) in {(200, True), (400, False)}
