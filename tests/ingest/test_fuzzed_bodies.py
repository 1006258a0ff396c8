"""Random bodies of the ingest routes.

Every response is 202 or an error in the common error shape. Of a body with valid and invalid
runs, every valid run is stored and every invalid one is reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.core.ids import uuid7
from apps.trace_store import Payload, run_store
from tests.examples import fuzz_settings
from tests.factories.tracing import BOUNDARY, MULTIPART, wire_run
from tests.tracing.fuzzing import (
    BAD_RUNS,
    DAMAGES,
    ENCODINGS,
    JSON,
    damage,
    encode_body,
)

pytestmark = pytest.mark.exhaustive

EXPECTED_STATUSES = {202, 400, 413, 415, 422}
FIELDS = ["inputs", "outputs", "extra", "events", "error", "serialized"]
BROKEN_JSON = [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b"[" * 5000, b'{"id": 1}', b"NaN"]


def check_response(response):
    assert response.status_code in EXPECTED_STATUSES, (response.status_code, response.content[:300])
    if response.status_code >= 400:
        assert set(response.json()) == {"detail", "code", "errors"}
    return response


@dataclass
class Body:
    """Multipart parts in random order, with the expected outcome."""

    parts: list[bytes]
    valid_runs: list[dict]
    rejected_ids: set[str]
    """The ids of runs that are rejected."""

    @property
    def bytes(self):
        return b"".join(f"--{BOUNDARY}\r\n".encode() + part + b"\r\n" for part in self.parts) + (
            f"--{BOUNDARY}--\r\n".encode()
        )


def part_head(name, content_type="application/json", *lines_after):
    lines = [
        f'Content-Disposition: form-data; name="{name}"',
        f"Content-Type: {content_type}",
        *lines_after,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@st.composite
def parts_with_heads(draw, name, content):
    """Draw the headers of a part as one of the clients sends them, with its content."""
    size = len(content)
    labels = [
        part_head(name),
        part_head(name, f"application/json; length={size}"),
        part_head(name, "application/json", f"Content-Length: {size}"),
        part_head(name, "application/json; charset=utf-8", "X-Odd: \u00fc", "X-Odd: again"),
        part_head(name, "APPLICATION/JSON", "Content-Transfer-Encoding: binary"),
        f"content-disposition:form-data;name={name}\r\n\r\n".encode(),
        f'Content-Type: text/plain\r\nContent-Disposition: form-data; filename="x"; name="{name}"'
        "\r\n\r\n".encode(),
        f"Content-Disposition: form-data; name*=utf-8''{name}\r\n\r\n".encode(),
        b'Content-Disposition: form-data; name="post.x"\r\n'
        + part_head(name),  # the last header applies
    ]
    return draw(st.sampled_from(labels)) + content


@st.composite
def valid_run_parts(draw, run):
    """Draw the parts of a valid run: one or several, possibly repeated."""
    parts = []
    separate_fields = draw(st.lists(st.sampled_from(FIELDS[:2]), unique=True))
    main = {name: value for name, value in run.items() if name not in separate_fields}
    name = f"post.{run['id']}"
    parts.append(draw(parts_with_heads(name, json.dumps(main).encode())))
    parts += [
        draw(parts_with_heads(f"{name}.{field}", json.dumps(run[field]).encode()))
        for field in separate_fields
    ]
    if draw(st.booleans()):
        parts.append(parts[0])
    if draw(st.booleans()):
        file = draw(st.binary(max_size=30)).replace(b"--", b"")
        parts.append(part_head(f"attachment.{run['id']}.a.b", "text/plain") + file)
    if draw(st.booleans()):
        parts.append(part_head(f"{name}.unknown") + draw(st.sampled_from(BROKEN_JSON)))
    return parts


@st.composite
def invalid_run_parts(draw):
    """Draw the parts of a run that cannot be stored, and its id."""
    run_id = str(uuid7())
    name = f"post.{run_id}"
    run = wire_run(id=run_id)
    main = json.dumps(run).encode()
    defect = draw(st.sampled_from(["value", "no json", "length", "other id", "field", "no run"]))
    match defect:
        case "value":
            invalid = draw(st.sampled_from(BAD_RUNS))
            return run_id, [draw(parts_with_heads(name, json.dumps(run | invalid).encode()))]
        case "no json":
            return run_id, [part_head(name) + draw(st.sampled_from(BROKEN_JSON))]
        case "length":
            length = draw(st.sampled_from([0, 1, 10**6, 10**18 - 1, 10**30, int("9" * 400)]))
            invalid = f"application/json; length={length}"
            return run_id, [part_head(name, invalid) + main]
        case "other id":
            return run_id, [part_head(name) + json.dumps(run | {"id": str(uuid4())}).encode()]
        case "field":
            broken = draw(st.sampled_from([b"{", b"[1", b"\xff", b"[" * 5000]))
            return run_id, [part_head(name) + main, part_head(f"{name}.inputs") + broken]
    return run_id, [part_head(f"{name}.outputs") + b"{}"]


ODD_PARTS = [
    part_head("post.") + b"{}",
    part_head("post.unknown") + b"{}",
    part_head(".") + b"{}",
    part_head("attachment.x.y") + b"abc",
    part_head(f"attachment.{UUID(int=5)}.", "text/plain") + b"abc",
    part_head("feedback.x") + b"{}",
    part_head(f"feedback.{UUID(int=6)}") + b"[]",
    part_head(f"unknown.{UUID(int=7)}") + b"{}",
    part_head("\u202e\u00fc\ufffd") + b"\xff",
    # A multipart body inside a part is plain content.
    part_head("post.nested", "multipart/form-data; boundary=in")
    + b'--in\r\nContent-Disposition: form-data; name="post.y"\r\n\r\n{}\r\n--in--\r\n',
]


@st.composite
def bodies(draw):
    runs = [wire_run(inputs={"a": n}, outputs={"b": n}) for n in range(draw(st.integers(1, 3)))]
    parts = [part for run in runs for part in draw(valid_run_parts(run))]
    rejected_ids = set()
    for _ in range(draw(st.integers(0, 3))):
        run_id, run_parts = draw(invalid_run_parts())
        rejected_ids.add(run_id)
        parts += run_parts
    parts += draw(st.lists(st.sampled_from(ODD_PARTS), max_size=3))
    return Body(draw(st.permutations(parts)), runs, rejected_ids)


def send(api, body, encoding="", content_type=MULTIPART):
    headers = {"Content-Encoding": encoding} if encoding else {}
    return api.client.generic(
        "POST", "/runs/multipart", body, content_type=content_type, headers=headers
    )


def read_stored(workspace, run):
    detail = run_store.get(workspace.pk, UUID(run["id"]))
    assert detail is not None, run["id"]
    return detail


@fuzz_settings(30)
@given(body=bodies(), encoding_name=st.sampled_from(ENCODINGS))
def test_valid_runs_of_a_form_are_stored_and_invalid_ones_reported(
    api, workspace, body, encoding_name
):
    encoded_body, encoding = encode_body(body.bytes, encoding_name)

    response = send(api, encoded_body, encoding)

    assert response.status_code == 202, response.content
    for run in body.valid_runs:
        stored_run = read_stored(workspace, run)
        assert stored_run.value(Payload.INPUTS) == run["inputs"]
        assert stored_run.value(Payload.OUTPUTS) == run["outputs"]
    error_ids = " ".join(error["id"] for error in response.json().get("errors", []))
    assert {run_id for run_id in body.rejected_ids if run_id not in error_ids} == set()
    assert [run["id"] for run in body.valid_runs if run["id"] in error_ids] == []
    assert [
        run_id for run_id in body.rejected_ids if run_store.get(workspace.pk, UUID(run_id))
    ] == []


@fuzz_settings(45)
@given(damages=DAMAGES, body=bodies(), encoding_name=st.sampled_from(ENCODINGS))
def test_a_damaged_form_is_no_server_error(api, damages, body, encoding_name):
    encoded_body, encoding = encode_body(damage(body.bytes, damages), encoding_name)

    check_response(send(api, encoded_body, encoding))


@fuzz_settings(30)
@given(damages=DAMAGES, body=bodies(), encoding_name=st.sampled_from(ENCODINGS[1:]))
def test_a_form_damaged_after_compression_is_no_server_error(api, damages, body, encoding_name):
    encoded_body, encoding = encode_body(body.bytes, encoding_name)

    check_response(send(api, damage(encoded_body, damages), encoding))


@fuzz_settings(18)
@given(
    body=bodies(),
    encoding=st.sampled_from(["gzip", "zstd", "br", "gzip, zstd", "x" * 300, "identity", "GZIP"]),
    boundary=st.sampled_from(
        [
            *("", "; boundary=", '; boundary=""', "; boundary=wrong", f"; boundary={BOUNDARY}x"),
            *(f'; boundary="{BOUNDARY}"; charset=\u00fc', "; boundary=\u00fc", "; BOUNDARY=(.*)+"),
        ]
    ),
)
def test_a_form_with_wrong_headers_is_no_server_error(api, body, encoding, boundary):
    check_response(send(api, body.bytes, encoding))
    check_response(send(api, body.bytes, "", f"multipart/form-data{boundary}"))
    check_response(send(api, body.bytes, encoding, f"application/json{boundary}"))


@fuzz_settings(30)
@given(
    invalid_values=st.lists(st.sampled_from(BAD_RUNS) | JSON, min_size=1, max_size=4),
    count=st.integers(1, 3),
    is_patch=st.booleans(),
    encoding_name=st.sampled_from(ENCODINGS),
)
@example(
    invalid_values=[{"session_name": "\x00"}], count=1, is_patch=False, encoding_name="identity"
)
def test_valid_runs_of_a_batch_are_stored_and_invalid_ones_counted(
    api, invalid_values, count, is_patch, encoding_name
):
    valid_runs = [wire_run(inputs={"a": n}) for n in range(count)]
    invalid_runs = [
        wire_run() | value if isinstance(value, dict) else value for value in invalid_values
    ]
    batch = (
        {"post": valid_runs, "patch": invalid_runs}
        if is_patch
        else {"post": [*invalid_runs, *valid_runs]}
    )
    body, encoding = encode_body(json.dumps(batch).encode(), encoding_name)

    response = api.client.post(
        "/runs/batch", body, content_type="application/json", headers={"Content-Encoding": encoding}
    )

    assert response.status_code == 202, response.content
    for run in valid_runs:
        assert api.get(f"/runs/{run['id']}").json()["inputs"] == run["inputs"]
    error_count = len(response.json().get("errors", []))
    unreadable_count = sum(not isinstance(value, dict) for value in invalid_values)
    assert error_count >= unreadable_count


@fuzz_settings(30)
@given(field=st.sampled_from([*wire_run(), *FIELDS, "trace_tier", "address"]), value=JSON)
def test_a_run_with_any_value_in_any_field_is_readable_or_rejected(api, field, value):
    run = wire_run() | {field: value}
    response = check_response(api.post("/runs", json.dumps(run)))
    check_response(api.patch(f"/runs/{uuid7()}", json.dumps({field: value})))

    if response.status_code == 202:
        read = api.get(f"/runs/{response.json()['id']}")
        assert read.status_code in {200, 404}, (
            read.content
        )  # a child is deferred until its parent arrives


EXTREME_TIMES = [
    *("0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999"),
    *("9999-12-31T23:59:59-14:00", "1600-02-29T00:00:00Z", "1970-01-01", "2026-02-30T00:00:00"),
    *("2026-01-01T24:00:00", "2026-W01-1", "20260101T000000", "٢٠٢٦-01-01", "-1", ""),
    *(0, -1, 1e308, -1e308, 253402300799999, -62135596800000, 1e-320, 2**63, 10**400),
]


@pytest.mark.parametrize("timestamp", EXTREME_TIMES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_a_run_with_an_extreme_time_is_readable_or_rejected(api, field, timestamp):
    run = wire_run() | {field: timestamp}
    for omitted in ((), ("dotted_order", "trace_id")):
        fields = {name: value for name, value in run.items() if name not in omitted}
        fields["id"] = str(uuid7()) if omitted else run["id"]
        response = check_response(api.post("/runs", json.dumps(fields)))
        if response.status_code == 202:
            assert api.get(f"/runs/{fields['id']}").status_code == 200
            assert api.post("/runs/query", {"id": [fields["id"]]}).status_code == 200
            assert api.post("/runs/stats", {"id": [fields["id"]]}).status_code < 500


@fuzz_settings(18)
@given(
    headers=st.dictionaries(
        st.sampled_from(
            [
                *("Langsmith-Project", "X-Api-Key", "X-Tenant-Id", "Content-Encoding", "Accept"),
                *("Range-If", "Authorization", "X-Service-Key", "Content-Type", "Origin"),
                *("If-None-Match", "Range", "Cookie", "Accept-Encoding", "X-Request-Id"),
            ]
        ),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=60)
        | st.sampled_from(["-1", "9" * 30, "n" * 3000, "Bearer ", "bytes=0-", "\x00", "*/*;q=x"]),
        max_size=3,
    )
)
def test_any_headers_are_no_server_error(api, headers):
    run = wire_run()
    for method, path, body in (
        ("POST", "/runs", json.dumps(run)),
        ("POST", "/otel/v1/traces", "{}"),
        ("GET", f"/runs/{run['id']}", ""),
        ("POST", "/v2/runs/query", '{"project_ids": []}'),
        ("GET", "/sessions", ""),
    ):
        content_type = headers.get("Content-Type", "application/json")
        other_headers = {name: value for name, value in headers.items() if name != "Content-Type"}
        response = api.client.generic(
            method, path, body, content_type=content_type, headers=other_headers
        )
        assert response.status_code < 500, (path, response.content[:300])
