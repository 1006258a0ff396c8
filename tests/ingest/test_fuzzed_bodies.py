"""Bodies of the ingest routes put together at random, piece by piece.

Whatever comes, the answer is 202 or a refusal in the one error shape; of a body that holds good
runs and bad ones, every good run is stored whole and every bad one is named.
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
from tests.factories.tracing import BOUNDARY, MULTIPART, wire_run
from tests.tracing.fuzzing import BAD_RUNS, DAMAGES, JSON, WHOLE, damaged, often, packed

TELLING = {202, 400, 413, 415, 422}
FIELDS = ["inputs", "outputs", "extra", "events", "error", "serialized"]
BROKEN_JSON = [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b"[" * 5000, b'{"id": 1}', b"NaN"]


def told(response):
    assert response.status_code in TELLING, (response.status_code, response.content[:300])
    if response.status_code >= 400:
        assert set(response.json()) == {"detail", "code", "errors"}
    return response


@dataclass
class Body:
    """Parts in some order, and what must become of them."""

    parts: list[bytes]
    good: list[dict]
    bad: set[str]
    """Ids of runs that are refused."""

    @property
    def bytes(self):
        return b"".join(f"--{BOUNDARY}\r\n".encode() + part + b"\r\n" for part in self.parts) + (
            f"--{BOUNDARY}--\r\n".encode()
        )


def head(name, kind="application/json", *more):
    lines = [f'Content-Disposition: form-data; name="{name}"', f"Content-Type: {kind}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@st.composite
def heads(draw, name, content):
    """The same part labelled in the ways that clients label it."""
    size = len(content)
    labels = [
        head(name),
        head(name, f"application/json; length={size}"),
        head(name, "application/json", f"Content-Length: {size}"),
        head(name, "application/json; charset=utf-8", "X-Odd: \u00fc", "X-Odd: again"),
        head(name, "APPLICATION/JSON", "Content-Transfer-Encoding: binary"),
        f"content-disposition:form-data;name={name}\r\n\r\n".encode(),
        f'Content-Type: text/plain\r\nContent-Disposition: form-data; filename="x"; name="{name}"'
        "\r\n\r\n".encode(),
        f"Content-Disposition: form-data; name*=utf-8''{name}\r\n\r\n".encode(),
        b'Content-Disposition: form-data; name="post.x"\r\n' + head(name),  # the last one counts
    ]
    return draw(st.sampled_from(labels)) + content


@st.composite
def good_runs(draw, run):
    """A run as one part, or in several; a part of it may come twice."""
    parts = []
    apart = draw(st.lists(st.sampled_from(FIELDS[:2]), unique=True))
    main = {name: value for name, value in run.items() if name not in apart}
    name = f"post.{run['id']}"
    parts.append(draw(heads(name, json.dumps(main).encode())))
    parts += [draw(heads(f"{name}.{one}", json.dumps(run[one]).encode())) for one in apart]
    if draw(st.booleans()):
        parts.append(parts[0])
    if draw(st.booleans()):
        file = draw(st.binary(max_size=30)).replace(b"--", b"")
        parts.append(head(f"attachment.{run['id']}.a.b", "text/plain") + file)
    if draw(st.booleans()):
        parts.append(head(f"{name}.unknown") + draw(st.sampled_from(BROKEN_JSON)))
    return parts


@st.composite
def bad_runs(draw):
    """Parts of a run that cannot be stored, and its id."""
    run_id = str(uuid7())
    name = f"post.{run_id}"
    run = wire_run(id=run_id)
    main = json.dumps(run).encode()
    kind = draw(st.sampled_from(["value", "no json", "length", "other id", "field", "no run"]))
    match kind:
        case "value":
            wrong = draw(st.sampled_from(BAD_RUNS))
            return run_id, [draw(heads(name, json.dumps(run | wrong).encode()))]
        case "no json":
            return run_id, [head(name) + draw(st.sampled_from(BROKEN_JSON))]
        case "length":
            length = draw(st.sampled_from([0, 1, 10**6, 10**18 - 1, 10**30, int("9" * 400)]))
            wrong = f"application/json; length={length}"
            return run_id, [head(name, wrong) + main]
        case "other id":
            return run_id, [head(name) + json.dumps(run | {"id": str(uuid4())}).encode()]
        case "field":
            broken = draw(st.sampled_from([b"{", b"[1", b"\xff", b"[" * 5000]))
            return run_id, [head(name) + main, head(f"{name}.inputs") + broken]
    return run_id, [head(f"{name}.outputs") + b"{}"]


ODD_PARTS = [
    head("post.") + b"{}",
    head("post.nobody") + b"{}",
    head(".") + b"{}",
    head("attachment.x.y") + b"abc",
    head(f"attachment.{UUID(int=5)}.", "text/plain") + b"abc",
    head("feedback.x") + b"{}",
    head(f"feedback.{UUID(int=6)}") + b"[]",
    head(f"unknown.{UUID(int=7)}") + b"{}",
    head("\u202e\u00fc\ufffd") + b"\xff",
    # A body within a body is only bytes.
    head("post.nested", "multipart/form-data; boundary=in")
    + b'--in\r\nContent-Disposition: form-data; name="post.y"\r\n\r\n{}\r\n--in--\r\n',
]


@st.composite
def bodies(draw):
    good = [wire_run(inputs={"a": n}, outputs={"b": n}) for n in range(draw(st.integers(1, 3)))]
    parts = [part for run in good for part in draw(good_runs(run))]
    bad = set()
    for _ in range(draw(st.integers(0, 3))):
        run_id, of_run = draw(bad_runs())
        bad.add(run_id)
        parts += of_run
    parts += draw(st.lists(st.sampled_from(ODD_PARTS), max_size=3))
    return Body(draw(st.permutations(parts)), good, bad)


def send(api, body, encoding="", content_type=MULTIPART):
    headers = {"Content-Encoding": encoding} if encoding else {}
    return api.client.generic(
        "POST", "/runs/multipart", body, content_type=content_type, headers=headers
    )


def stored(workspace, run):
    detail = run_store.get(workspace.pk, UUID(run["id"]))
    assert detail is not None, run["id"]
    return detail


@often(100)
@given(body=bodies(), how=st.sampled_from(WHOLE))
def test_the_good_runs_of_a_form_are_stored_and_the_bad_ones_named(api, workspace, body, how):
    packed_body, encoding = packed(body.bytes, how)

    response = send(api, packed_body, encoding)

    assert response.status_code == 202, response.content
    for run in body.good:
        stored_run = stored(workspace, run)
        assert stored_run.value(Payload.INPUTS) == run["inputs"]
        assert stored_run.value(Payload.OUTPUTS) == run["outputs"]
    named = " ".join(one["id"] for one in response.json().get("errors", []))
    assert {run_id for run_id in body.bad if run_id not in named} == set()
    assert [run["id"] for run in body.good if run["id"] in named] == []
    assert [one for one in body.bad if run_store.get(workspace.pk, UUID(one))] == []


@often(150)
@given(damages=DAMAGES, body=bodies(), how=st.sampled_from(WHOLE))
def test_a_damaged_form_is_answered(api, damages, body, how):
    packed_body, encoding = packed(damaged(body.bytes, damages), how)

    told(send(api, packed_body, encoding))


@often(100)
@given(damages=DAMAGES, body=bodies(), how=st.sampled_from(WHOLE[1:]))
def test_a_form_that_was_damaged_when_packed_is_answered(api, damages, body, how):
    packed_body, encoding = packed(body.bytes, how)

    told(send(api, damaged(packed_body, damages), encoding))


@often(60)
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
def test_a_form_under_headers_that_do_not_fit_is_answered(api, body, encoding, boundary):
    told(send(api, body.bytes, encoding))
    told(send(api, body.bytes, "", f"multipart/form-data{boundary}"))
    told(send(api, body.bytes, encoding, f"application/json{boundary}"))


@often(100)
@given(
    wrong=st.lists(st.sampled_from(BAD_RUNS) | JSON, min_size=1, max_size=4),
    count=st.integers(1, 3),
    is_patch=st.booleans(),
    how=st.sampled_from(WHOLE),
)
@example(wrong=[{"session_name": "\x00"}], count=1, is_patch=False, how="identity")
def test_the_good_runs_of_a_batch_are_stored_and_the_bad_ones_named(
    api, wrong, count, is_patch, how
):
    good = [wire_run(inputs={"a": n}) for n in range(count)]
    bad = [wire_run() | one if isinstance(one, dict) else one for one in wrong]
    batch = {"post": good, "patch": bad} if is_patch else {"post": [*bad, *good]}
    body, encoding = packed(json.dumps(batch).encode(), how)

    response = api.client.post(
        "/runs/batch", body, content_type="application/json", headers={"Content-Encoding": encoding}
    )

    assert response.status_code == 202, response.content
    for run in good:
        assert api.get(f"/runs/{run['id']}").json()["inputs"] == run["inputs"]
    refused = len(response.json().get("errors", []))
    unreadable = sum(not isinstance(one, dict) for one in wrong)
    assert refused >= unreadable


@often(100)
@given(field=st.sampled_from([*wire_run(), *FIELDS, "trace_tier", "address"]), value=JSON)
def test_one_run_with_anything_in_any_field_is_answered_and_then_readable(api, field, value):
    run = wire_run() | {field: value}
    response = told(api.post("/runs", json.dumps(run)))
    told(api.patch(f"/runs/{uuid7()}", json.dumps({field: value})))

    if response.status_code == 202:
        read = api.get(f"/runs/{response.json()['id']}")
        assert read.status_code in {200, 404}, read.content  # a child waits for its parent


EXTREMES = [
    *("0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999"),
    *("9999-12-31T23:59:59-14:00", "1600-02-29T00:00:00Z", "1970-01-01", "2026-02-30T00:00:00"),
    *("2026-01-01T24:00:00", "2026-W01-1", "20260101T000000", "٢٠٢٦-01-01", "-1", ""),
    *(0, -1, 1e308, -1e308, 253402300799999, -62135596800000, 1e-320, 2**63, 10**400),
]


@pytest.mark.parametrize("moment", EXTREMES, ids=lambda one: str(one)[:30])
@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_a_run_at_the_end_of_time_is_answered_and_then_readable(api, field, moment):
    run = wire_run() | {field: moment}
    for left_out in ((), ("dotted_order", "trace_id")):
        fields = {name: value for name, value in run.items() if name not in left_out}
        fields["id"] = str(uuid7()) if left_out else run["id"]
        response = told(api.post("/runs", json.dumps(fields)))
        if response.status_code == 202:
            assert api.get(f"/runs/{fields['id']}").status_code == 200
            assert api.post("/runs/query", {"id": [fields["id"]]}).status_code == 200
            assert api.post("/runs/stats", {"id": [fields["id"]]}).status_code < 500


@often(60)
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
def test_any_headers_are_answered(api, headers):
    run = wire_run()
    for method, path, body in (
        ("POST", "/runs", json.dumps(run)),
        ("POST", "/otel/v1/traces", "{}"),
        ("GET", f"/runs/{run['id']}", ""),
        ("POST", "/v2/runs/query", '{"project_ids": []}'),
        ("GET", "/sessions", ""),
    ):
        given_type = headers.get("Content-Type", "application/json")
        rest = {name: value for name, value in headers.items() if name != "Content-Type"}
        response = api.client.generic(method, path, body, content_type=given_type, headers=rest)
        assert response.status_code < 500, (path, response.content[:300])
