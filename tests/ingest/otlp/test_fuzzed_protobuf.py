"""Valid protobuf that no exporter writes: ids of any length, any times, kinds and depths.

Whatever one span says, the answer is no failure, and the good span beside it is stored.
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
from tests.factories.spans import SECOND, export, span
from tests.ingest.otlp.conftest import Exporter
from tests.ingest.otlp.test_fuzzing import NAMES
from tests.tracing.fuzzing import DAMAGES, damaged, often

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["\x00", "a\x00b", "[[[", '{"a": 1}', "null", "9" * 400, "2026-01-01T00:00:00Z", "x" * 500]
)
TIMES = st.integers(0, 2**64 - 1) | st.sampled_from(
    [0, 1, 2**63 - 1, 2**63, 2**64 - 1, SECOND, 4_000_000_000 * SECOND]
)
IDS = st.binary(max_size=20) | st.sampled_from([b"", b"\0" * 8, b"\0" * 16, b"\xff" * 16])
VALUES = st.recursive(
    st.just(AnyValue())
    | TEXTS.map(lambda one: AnyValue(string_value=one))
    | st.booleans().map(lambda one: AnyValue(bool_value=one))
    | st.integers(-(2**63), 2**63 - 1).map(lambda one: AnyValue(int_value=one))
    | st.floats().map(lambda one: AnyValue(double_value=one))
    | st.binary(max_size=12).map(lambda one: AnyValue(bytes_value=one)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda some: AnyValue(array_value=ArrayValue(values=some)))
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda some: AnyValue(
                kvlist_value=KeyValueList(
                    values=[KeyValue(key=key, value=one) for key, one in some]
                )
            )
        )
    ),
    max_leaves=8,
)
# The same name may stand there twice.
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
    kind=st.integers(-5, 2**31 - 1),
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


def of_resource(spans: list[Span], about: list[KeyValue]) -> ResourceSpans:
    resource_spans = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    resource_spans.resource.attributes.extend(about)
    return resource_spans


@often(100)
@given(spans=st.lists(SPANS, min_size=1, max_size=3), about=ATTRIBUTES, is_before=st.booleans())
def test_the_good_span_beside_odd_ones_is_stored(
    exporter: Exporter, workspace: Workspace, spans: list[Span], about: list[KeyValue],
    *, is_before: bool,
) -> None:  # fmt: skip
    trace_id = uuid4()
    request = export(span(1, trace=trace_id.bytes))
    odd = of_resource(spans, about)
    if is_before:
        request.resource_spans.insert(0, odd)
    else:
        request.resource_spans.append(odd)

    response = exporter.send(request.SerializeToString())

    assert response.status_code == 200, response.content
    assert [row.id for row in run_store.trace(workspace.pk, trace_id)] == [trace_id]


@often(100)
@given(damages=DAMAGES, spans=st.lists(SPANS, min_size=1, max_size=2))
def test_a_damaged_request_is_answered(exporter: Exporter, damages: Any, spans: list[Span]) -> None:
    body = export(*spans, span(1)).SerializeToString()

    for encoding in ("", "gzip"):
        packed = gzip.compress(body, mtime=0) if encoding else body
        headers = {"Content_Encoding": encoding} if encoding else {}
        response = exporter.send(damaged(packed, damages), **headers)
        assert response.status_code in {200, 400, 413, 415}, response.content


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, as the encoding of protobuf has it."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


@pytest.mark.parametrize("depth", [20, 45, 95, 400])
@pytest.mark.parametrize("kind", ["list", "object"])
def test_values_nested_deeply_are_stored_or_refused(
    exporter: Exporter, workspace: Workspace, kind: str, depth: int
) -> None:
    # Made of bytes: the library itself makes no message that is nested so deeply.
    wraps: dict[str, Callable[[bytes], bytes]] = {
        "list": lambda one: field(5, field(1, one)),
        "object": lambda one: field(6, field(1, field(1, b"a") + field(2, one))),
    }
    value = AnyValue(string_value="x").SerializeToString()
    for _ in range(depth):
        value = wraps[kind](value)
    trace_id: UUID = uuid4()
    one = span(1, trace=trace_id.bytes).SerializeToString()
    one += field(9, field(1, b"input.value") + field(2, value))

    response = exporter.send(field(1, field(2, field(2, one))))

    # Protobuf itself reads a hundred levels.
    is_stored = bool(run_store.trace(workspace.pk, trace_id))
    assert (response.status_code, is_stored) in {(200, True), (400, False)}
