"""The largest traces, values and bodies are stored whole or rejected with a reason.

The quick sizes run the same code with less data; the slow sizes are the limits.
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
from tests.factories.tracing import multipart_body, read_run, wire_run

MB = 1_048_576
RUNS_PER_REQUEST = 500
BEGIN = datetime.now(UTC) - timedelta(minutes=10)


def sizes(*quick: int, whole: int) -> list[object]:
    return [*quick, pytest.param(whole, marks=pytest.mark.slow)]


def build_trace(size: int) -> list[dict]:
    """Build a wide and deep tree of `size` runs, each one millisecond after the previous."""
    chance = random.Random(5)
    runs = [wire_run(start=BEGIN, name="root", session_name="large")]
    for number in range(1, size):
        recent_runs = runs[max(0, number - 40) :]
        parent = chance.choice(recent_runs if number % 7 else runs[:20])
        start = BEGIN + timedelta(milliseconds=number)
        runs.append(wire_run(parent, start=start, name=f"step {number}"))
    return runs


def build_parts(run: dict) -> list[tuple[str, object]]:
    main = {name: value for name, value in run.items() if name not in {"inputs", "outputs"}}
    name = f"post.{run['id']}"
    return [
        (name, main),
        (f"{name}.inputs", run["inputs"]),
        (f"{name}.outputs", run["outputs"]),
    ]


@pytest.mark.parametrize("size", sizes(1500, whole=25_000))
def test_a_large_trace_sent_in_batches_is_read_as_one_tree(api, client, workspace, size):
    runs = build_trace(size)
    for begin in range(0, size, RUNS_PER_REQUEST):
        parts = [
            part for run in runs[begin : begin + RUNS_PER_REQUEST] for part in build_parts(run)
        ]
        body = zstandard.compress(multipart_body(*parts))
        assert api.multipart(body, **{"Content-Encoding": "zstd"}).status_code == 202
    process_all()
    root = runs[0]["id"]

    parents = {run["id"]: run["parent_run_id"] for run in runs}
    rows = run_store.fetch_trace(workspace.pk, UUID(root))
    stored_parents = {
        str(row.id): None if row.parent_run_id is None else str(row.parent_run_id) for row in rows
    }
    assert stored_parents == parents
    assert [row.dotted_order for row in rows] == sorted(run["dotted_order"] for run in runs)
    assert query_all_ids(api, root) == set(parents)

    project_id = read_run(workspace, root).row.project_id
    user = WorkspaceMembershipFactory(workspace=workspace, role="admin").user
    client.force_login(user)
    page = f"/o/{workspace.pk}/projects/p/{project_id}/r/{root}"
    assert client.get(page).status_code == 200
    tree = client.get(f"{page}/tree.json").json()
    assert [run[0] for run in tree["runs"]] == [str(row.id) for row in rows]
    assert {run[0]: tree["runs"][run[1]][0] if run[1] >= 0 else None for run in tree["runs"]} == (
        parents
    )


def query_all_ids(api, trace_id: str) -> set[str]:
    all_ids: set[str] = set()
    cursor = None
    while True:
        body = {"trace": trace_id, "select": ["id"], "limit": 100, "cursor": cursor}
        page = api.post("/runs/query", body).json()
        ids = {run["id"] for run in page["runs"]}
        assert not ids & all_ids
        all_ids |= ids
        cursor = page["cursors"]["next"]
        if cursor is None:
            return all_ids


def build_text(size: int) -> str:
    """Build a text of `size` characters that compresses like prose."""
    chance = random.Random(6)
    words = " ".join(f"{chance.choice(['in', 'out', 'und'])}{n}" for n in range(2000))
    return (words * (size // len(words) + 1))[:size]


@pytest.mark.parametrize("size", sizes(2 * MB, whole=25 * MB - 10_000))
@pytest.mark.parametrize("shape", ["text", "many small values", "many keys"])
def test_a_large_value_is_read_back_unchanged(api, workspace, size, shape):
    run = wire_run()
    outputs: dict = {
        "text": lambda: {"text": build_text(size - 1000)},
        "many small values": lambda: {"numbers": list(range(100_000, 100_000 + size // 9))},
        "many keys": lambda: {f"key {n:08}": n % 10 for n in range(size // 20)},
    }[shape]()
    body = json.dumps({"post": [run | {"outputs": outputs}]})

    response = api.post("/runs/batch", body)

    assert response.status_code == 202, response.content[:300]
    assert api.get(f"/runs/{run['id']}").json()["outputs"] == outputs
    row = read_run(workspace, run["id"]).row
    assert row.outputs_preview is None or len(row.outputs_preview) < 1000
    (listed,) = api.post("/runs/query", {"id": [run["id"]], "select": ["name"]}).json()["runs"]
    assert listed["name"] == "step"


@pytest.mark.parametrize("size", sizes(MB, whole=25 * MB - 10_000))
@pytest.mark.parametrize("field", ["inputs", "extra", "events", "error", "serialized"])
def test_a_large_value_in_any_field_is_stored(api, workspace, size, field):
    text = build_text(size)
    value = {
        "inputs": {"a": text},
        "extra": {"metadata": {"a": "b"}, "more": text},
        "events": [{"name": "new_token", "kwargs": {"text": text}}],
        "error": text,
        "serialized": {"a": text},
    }[field]
    run = wire_run() | {field: value}

    assert api.multipart(multipart_body((f"post.{run['id']}", run))).status_code == 202

    assert read_run(workspace, run["id"]).value(Payload(field)) == value
    assert api.get(f"/runs/{run['id']}").status_code == 200


@pytest.mark.parametrize("size", sizes(MB, whole=20 * MB))
def test_a_large_attachment_is_downloaded_unchanged(api, client, size):
    run = wire_run()
    content = random.Random(7).randbytes(size)
    body = multipart_body(
        (f"post.{run['id']}", run),
        (f"attachment.{run['id']}.file", content, "Content-Type: application/octet-stream"),
    )

    assert api.multipart(body).status_code == 202

    link = api.get(f"/runs/{run['id']}").json()["s3_urls"]["attachment.file"]["presigned_url"]
    path = "/" + link.split("//", 1)[1].split("/", 1)[1]
    assert b"".join(client.get(path)) == content


@pytest.mark.parametrize("size", sizes(2 * MB, whole=20 * MB))
@pytest.mark.parametrize("endpoint", ["batch", "multipart"])
def test_a_large_body_of_many_runs_is_stored_whole(api, workspace, size, endpoint):
    value_size = 10_000
    runs = [
        wire_run(inputs={"text": build_text(value_size)}) for _ in range(size // (value_size + 700))
    ]
    if endpoint == "batch":
        response = api.post("/runs/batch", json.dumps({"post": runs}))
    else:
        response = api.multipart(multipart_body(*((f"post.{run['id']}", run) for run in runs)))

    assert response.status_code == 202
    for run in (runs[0], runs[-1]):
        assert read_run(workspace, run["id"]).value(Payload.INPUTS) == run["inputs"]
    project_id = str(read_run(workspace, runs[0]["id"]).row.project_id)
    stats = api.post("/runs/stats", {"session": [project_id]})
    assert stats.json()["run_count"] == len(runs)


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_a_body_above_the_limit_is_rejected_with_the_limit(api, settings, encoding):
    settings.MAX_BODY_BYTES = MB
    body = json.dumps({"post": [wire_run(inputs={"a": "x" * (5 * MB)})]}).encode()
    compressed = zstandard.compress(body) if encoding == "zstd" else gzip.compress(body)
    response = api.client.post(
        "/runs/batch",
        compressed,
        content_type="application/json",
        headers={"Content-Encoding": encoding},
    )

    assert response.status_code == 413
    assert response.json()["detail"] == f"A decompressed body may have at most {4 * MB} bytes."


def test_large_metadata_is_stored_or_its_run_is_rejected(api):
    """A value that is too large for an index does not fail the other runs."""
    good = wire_run()
    large = [
        wire_run(extra={"metadata": {"a": build_text(3 * MB)}}),
        wire_run(extra={"metadata": {build_text(100_000): "a"}}),
        wire_run(extra={"metadata": {f"k{n}": n for n in range(20_000)}}),
        wire_run(tags=[build_text(MB)]),
        wire_run(tags=[f"t{n}" for n in range(20_000)]),
        wire_run(name=build_text(MB)),
        wire_run(extra={"metadata": {"session_id": build_text(MB)}}),
        wire_run(extra={"metadata": {"ls_model_name": build_text(MB)}}),
        wire_run(session_name=build_text(MB)),
    ]

    response = api.post("/runs/batch", json.dumps({"post": [*large, good]}))
    process_all()

    assert response.status_code == 202, response.content[:500]
    rejected_ids = {error["id"] for error in response.json().get("errors", [])}
    for run in [*large, good]:
        assert (api.get(f"/runs/{run['id']}").status_code == 200) == (run["id"] not in rejected_ids)
    assert good["id"] not in rejected_ids
