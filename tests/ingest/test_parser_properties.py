"""Any input is stored or rejected in the common error shape, without a server error."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import InvalidCursor
from apps.core.ids import uuid7
from apps.core.json import loads
from apps.ingest.errors import BadBody
from apps.ingest.multipart import parse_boundary, parse_part, split_parts
from apps.ingest.previews import MAX_PREVIEW_LENGTH, build_preview
from apps.ingest.token_usage import usage_columns
from apps.trace_store import cursors
from apps.trace_store.dotted_order import InvalidDottedOrder, format_segment, parse_position
from apps.trace_store.json_repair import repair
from tests.examples import fuzz_settings
from tests.factories.tracing import BOUNDARY, multipart_body, wire_run

pytestmark = pytest.mark.exhaustive

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("id", "name", "run_type", "start_time", "end_time", "tags", "extra", "inputs"),
        *("outputs", "events", "error", "serialized", "trace_id", "parent_run_id"),
        *("dotted_order", "session_id", "session_name", "reference_example_id"),
    ]
)
TIMESTAMPS = st.datetimes(
    datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("8999-12-31")
)
PROPERTY_SETTINGS = fuzz_settings(40)


def check_response(response):
    assert response.status_code in {202, 400, 413, 422}, response.content
    if response.status_code >= 400:
        assert set(response.json()) == {"detail", "code", "errors"}


@PROPERTY_SETTINGS
@given(st.binary(max_size=400), st.text("abc-'\"=; ", min_size=1, max_size=12))
def test_the_parser_accepts_or_rejects_any_bytes(body, boundary):
    try:
        for raw_part in split_parts(
            body, parse_boundary(f'multipart/form-data; boundary="{boundary}"')
        ):
            part = parse_part(raw_part)
            assert isinstance(part.content, bytes)
    except BadBody:
        pass


@PROPERTY_SETTINGS
@given(st.lists(st.tuples(st.text("ab.é;=\\ ", min_size=1), st.binary(max_size=50)), min_size=1))
def test_parts_are_parsed_back_to_their_names_and_contents(named_contents):
    named_contents = [
        (name, data) for name, data in named_contents if f"--{BOUNDARY}".encode() not in data
    ]
    body = multipart_body(
        *((n.replace("\\", "\\\\"), d, "Content-Type: text/plain") for n, d in named_contents)
    )

    if named_contents:
        parts = map(parse_part, split_parts(body, BOUNDARY.encode()))
        pairs = [(part.name, part.content) for part in parts]
        assert pairs == named_contents


@PROPERTY_SETTINGS
@given(data=st.data())
def test_a_body_with_flipped_bytes_is_no_server_error(api, data):
    run = wire_run()
    body = bytearray(
        multipart_body((f"post.{run['id']}", run), (f"post.{run['id']}.inputs", {"a": 1}))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    check_response(api.multipart(bytes(body)))


@PROPERTY_SETTINGS
@given(changes=st.dictionaries(FIELDS, JSON, min_size=1, max_size=4))
def test_a_run_with_any_values_is_no_server_error(api, changes):
    check_response(api.post("/runs/batch", json.dumps({"post": [wire_run() | changes]})))
    check_response(api.post("/runs/batch", json.dumps({"patch": [wire_run() | changes]})))


@PROPERTY_SETTINGS
@given(body=JSON)
def test_any_json_is_no_server_error(api, body):
    text = json.dumps(body)

    for path in ("/runs/batch", "/runs"):
        check_response(api.post(path, text))
    run_id = uuid7()
    check_response(api.patch(f"/runs/{run_id}", text))
    check_response(api.multipart(multipart_body((f"post.{run_id}", text.encode()))))
    check_response(api.multipart(multipart_body((f"feedback.{run_id}", text.encode()))))


@PROPERTY_SETTINGS
@given(changes=st.dictionaries(FIELDS, JSON, max_size=3))
def test_accepted_run_can_be_read(api, changes):
    run = wire_run() | changes
    response = api.post("/runs/batch", json.dumps({"post": [run]}))

    if response.status_code == 202 and "id" not in changes:
        read = api.post("/runs/query", {"id": [run["id"]]})
        assert read.status_code == 200
        (stored,) = read.json()["runs"]
        assert stored["id"] == run["id"]


@PROPERTY_SETTINGS
@given(st.text(max_size=200))
def test_any_dotted_order_is_parsed_or_rejected(text):
    with suppress(InvalidDottedOrder):
        parse_position(text, run_id=uuid7())


@PROPERTY_SETTINGS
@given(TIMESTAMPS, st.uuids())
def test_a_segment_is_parsed_back(timestamp, run_id):
    position = parse_position(format_segment(timestamp, run_id), run_id=run_id)

    assert position.partition_time.replace(tzinfo=None) == timestamp
    assert position.trace_id == run_id


@pytest.mark.parametrize(
    "invalid_time",
    ["X" * 22, "00010101T000000000000Z", "99991231T235959999999Z", "20261301T000000000000Z"],
)
def test_invalid_time_of_an_ancestor_is_rejected(invalid_time):
    trace_id, parent_id, run_id = uuid7(), uuid7(), uuid7()
    valid_time = "20260101T000000000000Z"

    for first, second in ((invalid_time, valid_time), (valid_time, invalid_time)):
        text = f"{first}{trace_id}.{second}{parent_id}.{valid_time}{run_id}"
        with pytest.raises(InvalidDottedOrder):
            parse_position(text, run_id=run_id, trace_id=trace_id, parent_run_id=parent_id)


@PROPERTY_SETTINGS
@given(st.datetimes(), st.uuids())
def test_a_cursor_is_decoded_back(timestamp, run_id):
    timestamp = timestamp.replace(tzinfo=UTC)

    assert cursors.decode_cursor(cursors.encode_cursor(timestamp, run_id)) == (timestamp, run_id)


@PROPERTY_SETTINGS
@given(st.text(max_size=60))
def test_foreign_cursor_is_rejected(text):
    with suppress(InvalidCursor):
        cursors.decode_cursor(text)


@PROPERTY_SETTINGS
@given(JSON)
def test_repaired_json_is_strict(value):
    text = json.dumps(value)

    repaired = repair(text.encode())

    json.loads(repaired.decode(), parse_constant=pytest.fail)


@PROPERTY_SETTINGS
@given(JSON)
def test_previews_are_short_lines(value):
    line = build_preview(loads(repair(json.dumps(value).encode())))

    assert line is None or (
        len(line) <= MAX_PREVIEW_LENGTH and "\n" not in line and "\x00" not in line
    )


@PROPERTY_SETTINGS
@given(JSON, JSON)
def test_usage_columns_have_values(outputs, metadata):
    candidate = {"usage_metadata": outputs, "usage": metadata, "generations": [[outputs]]}

    columns = usage_columns("llm", candidate, metadata if isinstance(metadata, dict) else None)

    assert all(value is not None for value in columns.values())
