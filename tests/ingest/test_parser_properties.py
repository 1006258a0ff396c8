"""Whatever comes: stored, or refused in the one error shape. Never a failure of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.ids import uuid7
from apps.core.json import loads
from apps.ingest.errors import BadBody
from apps.ingest.multipart import parse_boundary, parse_part, split_parts
from apps.ingest.previews import MAX_PREVIEW_LENGTH, preview
from apps.ingest.token_usage import usage_columns
from apps.trace_store import cursors
from apps.trace_store.dotted_order import InvalidDottedOrder, format_segment, parse_position
from apps.trace_store.errors import InvalidCursor
from apps.trace_store.json_repair import repair
from tests.factories.tracing import BOUNDARY, form, wire_run

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
MOMENTS = st.datetimes(datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("8999-12-31"))
LIMITED = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def told(response):
    assert response.status_code in {202, 400, 413, 422}, response.content
    if response.status_code >= 400:
        assert set(response.json()) == {"detail", "code", "errors"}


@LIMITED
@given(st.binary(max_size=400), st.text("abc-'\"=; ", min_size=1, max_size=12))
def test_the_parser_takes_any_bytes(body, boundary):
    try:
        for raw_part in split_parts(
            body, parse_boundary(f'multipart/form-data; boundary="{boundary}"')
        ):
            part = parse_part(raw_part)
            assert isinstance(part.content, bytes)
    except BadBody:
        pass


@LIMITED
@given(st.lists(st.tuples(st.text("ab.é;=\\ ", min_size=1), st.binary(max_size=50)), min_size=1))
def test_parts_come_out_as_they_went_in(pieces):
    pieces = [(name, data) for name, data in pieces if f"--{BOUNDARY}".encode() not in data]
    body = form(*((n.replace("\\", "\\\\"), d, "Content-Type: text/plain") for n, d in pieces))

    if pieces:
        parts = map(parse_part, split_parts(body, BOUNDARY.encode()))
        pairs = [(part.name, part.content) for part in parts]
        assert pairs == pieces


@LIMITED
@given(data=st.data())
def test_a_body_with_flipped_bytes_is_answered(api, data):
    run = wire_run()
    body = bytearray(form((f"post.{run['id']}", run), (f"post.{run['id']}.inputs", {"a": 1})))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    told(api.multipart(bytes(body)))


@LIMITED
@given(changes=st.dictionaries(FIELDS, JSON, min_size=1, max_size=4))
def test_a_run_with_any_values_is_answered(api, changes):
    told(api.post("/runs/batch", json.dumps({"post": [wire_run() | changes]})))
    told(api.post("/runs/batch", json.dumps({"patch": [wire_run() | changes]})))


@LIMITED
@given(body=JSON)
def test_any_json_is_answered(api, body):
    text = json.dumps(body)

    for path in ("/runs/batch", "/runs"):
        told(api.post(path, text))
    run_id = uuid7()
    told(api.patch(f"/runs/{run_id}", text))
    told(api.multipart(form((f"post.{run_id}", text.encode()))))
    told(api.multipart(form((f"feedback.{run_id}", text.encode()))))


@LIMITED
@given(changes=st.dictionaries(FIELDS, JSON, max_size=3))
def test_accepted_run_can_be_read(api, changes):
    run = wire_run() | changes
    response = api.post("/runs/batch", json.dumps({"post": [run]}))

    if response.status_code == 202 and "id" not in changes:
        read = api.post("/runs/query", {"id": [run["id"]]})
        assert read.status_code == 200
        (stored,) = read.json()["runs"]
        assert stored["id"] == run["id"]


@LIMITED
@given(st.text(max_size=200))
def test_any_dotted_order_is_parsed_or_rejected(text):
    with suppress(InvalidDottedOrder):
        parse_position(text, run_id=uuid7())


@LIMITED
@given(MOMENTS, st.uuids())
def test_a_segment_is_read_back(moment, run_id):
    place = parse_position(format_segment(moment, run_id), run_id=run_id)

    assert place.partition_time.replace(tzinfo=None) == moment
    assert place.trace_id == run_id


@pytest.mark.parametrize(
    "above",
    ["X" * 22, "00010101T000000000000Z", "99991231T235959999999Z", "20261301T000000000000Z"],
)
def test_invalid_time_of_an_ancestor_is_rejected(above):
    trace_id, parent_id, run_id = uuid7(), uuid7(), uuid7()
    good = "20260101T000000000000Z"

    for first, second in ((above, good), (good, above)):
        text = f"{first}{trace_id}.{second}{parent_id}.{good}{run_id}"
        with pytest.raises(InvalidDottedOrder):
            parse_position(text, run_id=run_id, trace_id=trace_id, parent_run_id=parent_id)


@LIMITED
@given(st.datetimes(), st.uuids())
def test_a_cursor_is_read_back(moment, run_id):
    moment = moment.replace(tzinfo=UTC)

    assert cursors.decode_cursor(cursors.encode_cursor(moment, run_id)) == (moment, run_id)


@LIMITED
@given(st.text(max_size=60))
def test_foreign_cursor_is_rejected(text):
    with suppress(InvalidCursor):
        cursors.decode_cursor(text)


@LIMITED
@given(JSON)
def test_repaired_json_is_strict(value):
    text = json.dumps(value)

    repaired = repair(text.encode())

    json.loads(repaired.decode(), parse_constant=pytest.fail)


@LIMITED
@given(JSON)
def test_previews_are_short_lines(value):
    line = preview(loads(repair(json.dumps(value).encode())))

    assert line is None or (
        len(line) <= MAX_PREVIEW_LENGTH and "\n" not in line and "\x00" not in line
    )


@LIMITED
@given(JSON, JSON)
def test_usage_is_numbers_or_nothing(outputs, metadata):
    candidate = {"usage_metadata": outputs, "usage": metadata, "generations": [[outputs]]}

    columns = usage_columns("llm", candidate, metadata if isinstance(metadata, dict) else None)

    assert all(value is not None for value in columns.values())
