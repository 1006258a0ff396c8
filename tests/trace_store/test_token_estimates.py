"""Estimates of tokens of model calls that report none."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.tracing import ingest, read_run, wire_run

MESSAGE = {"role": "user", "content": "x" * 40, "id": "y" * 400}
OUTPUT = {"messages": [{"content": [{"type": "text", "text": "z" * 9}]}]}


def model_run(**fields):
    return wire_run(
        **{"run_type": "llm", "inputs": {"messages": [MESSAGE]}, "outputs": OUTPUT, **fields}
    )


@pytest.mark.parametrize(
    ("fields", "estimate"),
    [
        ({}, {"prompt_tokens": 10, "completion_tokens": 3}),
        ({"inputs": {"prompt": "ü" * 10}}, {"prompt_tokens": 5, "completion_tokens": 3}),
        ({"outputs": {"text": "plain text"}}, {"prompt_tokens": 10, "completion_tokens": 3}),
        (
            {"inputs": {"messages": [{"content": ["data:image/png;base64,AAAA"]}]}},
            {"prompt_tokens": 0, "completion_tokens": 3},
        ),
        ({"run_type": "chain"}, None),
        ({"outputs": None, "end_time": None}, None),
        ({"inputs": {}, "outputs": {"n": 1}}, None),
        ({"outputs": {**OUTPUT, "usage_metadata": {"input_tokens": 0, "output_tokens": 1}}}, None),
    ],
)
def test_model_calls_without_usage_have_an_estimate(api, workspace, fields, estimate):
    run = model_run(**fields)
    ingest(workspace, run)

    row = api.get(f"/runs/{run['id']}").json()

    assert row["estimated_tokens"] == estimate
    if estimate is not None:
        assert (row["prompt_tokens"], row["total_tokens"], row["total_cost"]) == (0, 0, None)


def test_lists_without_payloads_make_no_estimate(api, workspace):
    run = model_run()
    ingest(workspace, run)

    body = {"id": [run["id"]], "select": ["id", "outputs"]}

    [row] = api.post("/runs/query", body).json()["runs"]
    assert row["estimated_tokens"] is None


def test_page_marks_the_estimate(workspace):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    run = model_run()
    known = model_run(outputs={"usage_metadata": {"input_tokens": 7, "output_tokens": 1}})
    ingest(workspace, run, known)

    def open_page(run):
        project_id = read_run(workspace, UUID(run["id"])).row.project_id
        path = f"/o/{workspace.pk}/projects/p/{project_id}/r/{run['id']}"
        return viewer.get(path).content.decode()

    assert "≈ 10 → 3" in open_page(run)
    assert "≈" not in open_page(known)
