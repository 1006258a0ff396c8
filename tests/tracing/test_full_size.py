"""The largest traces, values and bodies there are: stored whole, or refused with a reason.

The quick forms go the same ways with less; the long ones are as large as it gets.
"""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import zstandard

from apps.trace_store import Payload, run_store
from apps.trace_store.postgres.postprocess.processor import process_all
from tests.factories.organizations import WorkspaceMembershipFactory
from tests.factories.tracing import form, read, wire_run

MB = 1_048_576
AT_ONCE = 500
BEGIN = datetime.now(UTC) - timedelta(minutes=10)


def sizes(*quick: int, whole: int) -> list[object]:
    return [*quick, pytest.param(whole, marks=pytest.mark.slow)]


def trace_of(size: int) -> list[dict]:
    """A tree of so many runs, wide and deep, each a moment after the one before."""
    chance = random.Random(5)
    runs = [wire_run(start=BEGIN, name="root", session_name="large")]
    for number in range(1, size):
        near = runs[max(0, number - 40) :]
        parent = chance.choice(near if number % 7 else runs[:20])
        start = BEGIN + timedelta(milliseconds=number)
        runs.append(wire_run(parent, start=start, name=f"step {number}"))
    return runs


def parts_of(run: dict) -> list[tuple[str, object]]:
    main = {name: value for name, value in run.items() if name not in {"inputs", "outputs"}}
    name = f"post.{run['id']}"
    return [
        (name, main),
        (f"{name}.inputs", run["inputs"]),
        (f"{name}.outputs", run["outputs"]),
    ]


@pytest.mark.parametrize("size", sizes(1500, whole=25_000))
def test_a_large_trace_comes_in_pieces_and_is_read_as_one_tree(api, client, workspace, size):
    runs = trace_of(size)
    for begin in range(0, size, AT_ONCE):
        parts = [part for run in runs[begin : begin + AT_ONCE] for part in parts_of(run)]
        body = zstandard.compress(form(*parts))
        assert api.multipart(body, **{"Content-Encoding": "zstd"}).status_code == 202
    process_all()
    root = runs[0]["id"]

    parents = {run["id"]: run["parent_run_id"] for run in runs}
    rows = run_store.trace(workspace.pk, UUID(root))
    found = {
        str(row.id): None if row.parent_run_id is None else str(row.parent_run_id) for row in rows
    }
    assert found == parents
    assert [row.dotted_order for row in rows] == sorted(run["dotted_order"] for run in runs)
    assert ids_by_pages(api, root) == set(parents)

    project_id = read(workspace, root).row.project_id
    user = WorkspaceMembershipFactory(workspace=workspace, role="admin").user
    client.force_login(user)
    page = f"/o/{workspace.pk}/projects/p/{project_id}/r/{root}"
    assert client.get(page).status_code == 200
    tree = client.get(f"{page}/tree.json").json()
    assert [run[0] for run in tree["runs"]] == [str(row.id) for row in rows]
    assert {run[0]: tree["runs"][run[1]][0] if run[1] >= 0 else None for run in tree["runs"]} == (
        parents
    )


def ids_by_pages(api, trace_id: str) -> set[str]:
    found: set[str] = set()
    cursor = None
    while True:
        asked = {"trace": trace_id, "select": ["id"], "limit": 100, "cursor": cursor}
        page = api.post("/runs/query", asked).json()
        ids = {run["id"] for run in page["runs"]}
        assert not ids & found
        found |= ids
        cursor = page["cursors"]["next"]
        if cursor is None:
            return found


def text_of(size: int) -> str:
    """So many characters that pack as text does."""
    chance = random.Random(6)
    words = " ".join(f"{chance.choice(['in', 'out', 'und'])}{n}" for n in range(2000))
    return (words * (size // len(words) + 1))[:size]


@pytest.mark.parametrize("size", sizes(2 * MB, whole=25 * MB - 10_000))
@pytest.mark.parametrize("shape", ["text", "many small values", "many keys"])
def test_a_large_value_is_stored_and_read_as_it_came(api, workspace, size, shape):
    run = wire_run()
    outputs: dict = {
        "text": lambda: {"text": text_of(size - 1000)},
        "many small values": lambda: {"numbers": list(range(100_000, 100_000 + size // 9))},
        "many keys": lambda: {f"key {n:08}": n % 10 for n in range(size // 20)},
    }[shape]()
    body = json.dumps({"post": [run | {"outputs": outputs}]})

    response = api.post("/runs/batch", body)

    assert response.status_code == 202, response.content[:300]
    assert api.get(f"/runs/{run['id']}").json()["outputs"] == outputs
    row = read(workspace, run["id"]).row
    assert row.outputs_preview is None or len(row.outputs_preview) < 1000
    (listed,) = api.post("/runs/query", {"id": [run["id"]], "select": ["name"]}).json()["runs"]
    assert listed["name"] == "step"


@pytest.mark.parametrize("size", sizes(MB, whole=25 * MB - 10_000))
@pytest.mark.parametrize("field", ["inputs", "extra", "events", "error", "serialized"])
def test_a_large_value_in_any_field_is_stored(api, workspace, size, field):
    text = text_of(size)
    value = {
        "inputs": {"a": text},
        "extra": {"metadata": {"a": "b"}, "more": text},
        "events": [{"name": "new_token", "kwargs": {"text": text}}],
        "error": text,
        "serialized": {"a": text},
    }[field]
    run = wire_run() | {field: value}

    assert api.multipart(form((f"post.{run['id']}", run))).status_code == 202

    assert read(workspace, run["id"]).value(Payload(field)) == value
    assert api.get(f"/runs/{run['id']}").status_code == 200


@pytest.mark.parametrize("size", sizes(MB, whole=20 * MB))
def test_a_large_attachment_is_given_out_as_it_came(api, client, size):
    run = wire_run()
    content = random.Random(7).randbytes(size)
    body = form(
        (f"post.{run['id']}", run),
        (f"attachment.{run['id']}.file", content, "Content-Type: application/octet-stream"),
    )

    assert api.multipart(body).status_code == 202

    link = api.get(f"/runs/{run['id']}").json()["s3_urls"]["attachment.file"]["presigned_url"]
    path = "/" + link.split("//", 1)[1].split("/", 1)[1]
    assert b"".join(client.get(path)) == content


@pytest.mark.parametrize("size", sizes(2 * MB, whole=20 * MB))
@pytest.mark.parametrize("wire", ["batch", "multipart"])
def test_a_large_body_of_many_runs_is_stored_whole(api, workspace, size, wire):
    each = 10_000
    runs = [wire_run(inputs={"text": text_of(each)}) for _ in range(size // (each + 700))]
    if wire == "batch":
        response = api.post("/runs/batch", json.dumps({"post": runs}))
    else:
        response = api.multipart(form(*((f"post.{run['id']}", run) for run in runs)))

    assert response.status_code == 202
    for run in (runs[0], runs[-1]):
        assert read(workspace, run["id"]).value(Payload.INPUTS) == run["inputs"]
    project_id = str(read(workspace, runs[0]["id"]).row.project_id)
    stats = api.post("/runs/stats", {"session": [project_id]})
    assert stats.json()["run_count"] == len(runs)


@pytest.mark.parametrize("packing", ["zstd", "gzip"])
def test_a_body_past_the_limit_is_refused_with_the_limit_named(api, settings, packing):
    settings.MAX_BODY_BYTES = MB
    body = json.dumps({"post": [wire_run(inputs={"a": "x" * (5 * MB)})]}).encode()
    sent = zstandard.compress(body) if packing == "zstd" else gzip.compress(body)
    response = api.client.post(
        "/runs/batch", sent, content_type="application/json", headers={"Content-Encoding": packing}
    )

    assert response.status_code == 413
    assert response.json()["detail"] == f"A decompressed body may have at most {4 * MB} bytes."


def test_a_large_metadata_value_is_stored_or_refused_with_a_reason(api):
    """Metadata is searched by its values; one too large for an index must not fail the rest."""
    good = wire_run()
    large = [
        wire_run(extra={"metadata": {"a": text_of(3 * MB)}}),
        wire_run(extra={"metadata": {text_of(100_000): "a"}}),
        wire_run(extra={"metadata": {f"k{n}": n for n in range(20_000)}}),
        wire_run(tags=[text_of(MB)]),
        wire_run(tags=[f"t{n}" for n in range(20_000)]),
        wire_run(name=text_of(MB)),
        wire_run(extra={"metadata": {"session_id": text_of(MB)}}),
        wire_run(extra={"metadata": {"ls_model_name": text_of(MB)}}),
        wire_run(session_name=text_of(MB)),
    ]

    response = api.post("/runs/batch", json.dumps({"post": [*large, good]}))
    process_all()

    assert response.status_code == 202, response.content[:500]
    named = {one["id"] for one in response.json().get("errors", [])}
    for run in [*large, good]:
        assert (api.get(f"/runs/{run['id']}").status_code == 200) == (run["id"] not in named)
    assert good["id"] not in named
