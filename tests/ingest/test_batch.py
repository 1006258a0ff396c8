"""POST /runs/batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from apps.core.ids import uuid7
from apps.trace_store import Payload
from apps.tracing.models import Project
from tests.factories.tracing import count_stored_runs, end_fields, read_run, start_fields, wire_run


def test_anonymous_request_is_rejected(client, db):
    assert client.post("/runs/batch", {}, content_type="application/json").status_code == 401


def test_read_only_key_is_rejected(make_api, workspace):
    assert (
        make_api(workspace, "read").post("/runs/batch", {"post": [wire_run()]}).status_code == 403
    )
    assert count_stored_runs() == 0


@pytest.mark.parametrize("prefix", ["", "/api/v1", "/api"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_batch_is_accepted_at_every_path_that_clients_use(api, prefix, slash):
    response = api.post(f"{prefix}/runs/batch{slash}", {"post": [wire_run()]})

    assert response.status_code == 202
    assert response.json() == {"message": "accepted"}
    assert count_stored_runs() == 1


@pytest.mark.parametrize("lacks", ["nothing", "dotted_order", "start_time"])
def test_a_new_project_starts_with_its_earliest_run(api, workspace, lacks):
    now = datetime.now(UTC)
    starts = [now - timedelta(minutes=1), now - timedelta(hours=2), now + timedelta(minutes=1)]
    runs = [wire_run(session_name="new", start=start) for start in starts]
    other = wire_run(session_name="other", start=now - timedelta(days=1))
    body = [{key: value for key, value in run.items() if key != lacks} for run in (*runs, other)]

    assert api.post("/runs/batch", {"post": body}).status_code == 202

    project = Project.objects.for_workspace(workspace).get(name="new")
    assert project.start_time == starts[1]
    # Clients read the runs of a project from its start time on.
    query = {"project_ids": [str(project.pk)], "min_start_time": starts[1].isoformat()}
    listed = api.post("/v2/runs/query", query | {"max_start_time": now.isoformat()}).json()
    assert len(listed["items"]) == 2


def test_a_new_project_of_runs_of_the_future_starts_now(api, workspace):
    run = wire_run(session_name="new", start=datetime.now(UTC) + timedelta(hours=1))

    assert api.post("/runs/batch", {"post": [run]}).status_code == 202

    project = Project.objects.for_workspace(workspace).get(name="new")
    assert abs(project.start_time - datetime.now(UTC)) < timedelta(minutes=10)


def test_posts_and_patches_of_one_body_are_merged_in_either_order(api, workspace):
    run = wire_run(name="whole")

    api.post("/runs/batch", {"patch": [end_fields(run)], "post": [start_fields(run)]})

    stored = read_run(workspace, run["id"])
    assert stored.row.name == "whole"
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}


def test_the_later_of_two_updates_wins(api, workspace):
    run = wire_run()
    first, second = (
        end_fields(run),
        end_fields(run) | {"outputs": {"answer": "second"}, "end_time": None},
    )

    api.post("/runs/batch", {"post": [start_fields(run)], "patch": [first, second]})

    stored = read_run(workspace, run["id"])
    assert stored.value(Payload.OUTPUTS) == {"answer": "second"}
    assert stored.row.end_time is not None


def test_payloads_are_stored_byte_for_byte(api, workspace):
    run = wire_run()
    text = '{ "n": 1.50, "big": 123456789012345678901234567890, "u": "\\u00e9" , "s":"é"}'
    run["inputs"] = "HERE"
    body = json.dumps({"post": [run]}).replace('"HERE"', text)

    api.post("/runs/batch", body)

    assert read_run(workspace, run["id"]).json(Payload.INPUTS) == text.encode()
    assert text in api.get(f"/runs/{run['id']}").content.decode()


def test_a_batch_with_a_nan_value_is_stored(api, workspace):
    valid_run, run_with_nan = wire_run(), wire_run(inputs={"x": float("nan")})

    response = api.post("/runs/batch", json.dumps({"post": [valid_run, run_with_nan]}))

    assert response.status_code == 202
    assert read_run(workspace, run_with_nan["id"]).value(Payload.INPUTS) == {"x": None}
    assert count_stored_runs() == 2


def test_valid_runs_are_stored_and_each_invalid_one_is_reported(api):
    valid_run = wire_run()
    invalid_runs = [wire_run(name=7), wire_run(tags="x"), wire_run(dotted_order="x")]

    response = api.post(
        "/runs/batch",
        {"post": [invalid_runs[0], valid_run, invalid_runs[1], invalid_runs[2], {"name": "n"}]},
    )

    assert response.status_code == 202
    rejected_ids = {error["id"] for error in response.json()["errors"]}
    assert rejected_ids == {*(run["id"] for run in invalid_runs), "post[4]"}
    assert response.json()["message"] == "1 accepted, 4 refused"
    assert count_stored_runs() == 1


@pytest.mark.parametrize("body", ["", "[]", "{", '{"post": {}}', '{"post": [1]}', "nul", "\x00"])
def test_body_that_is_not_a_batch_is_rejected(api, body):
    response = api.post("/runs/batch", body)

    assert response.status_code in {400, 422}
    assert set(response.json()) == {"detail", "code", "errors"}


def test_an_empty_batch_is_accepted(api):
    assert api.post("/runs/batch", {}).status_code == 202


def test_a_run_without_a_dotted_order_finds_its_parent_in_the_same_batch(api, workspace):
    parent = wire_run()
    child_id, grandchild_id = str(uuid7()), str(uuid7())
    child = {"id": child_id, "parent_run_id": parent["id"], "name": "c", "run_type": "tool"}
    grandchild = {"id": grandchild_id, "parent_run_id": child_id, "name": "g", "run_type": "tool"}

    response = api.post("/runs/batch", {"post": [grandchild, child, parent]})

    assert response.status_code == 202
    row = read_run(workspace, grandchild_id).row
    assert row.parent_run_ids == [UUID(parent["id"]), UUID(child_id)]
    assert row.trace_id == UUID(parent["id"])
    assert row.dotted_order.startswith(parent["dotted_order"] + ".")


def test_a_thousand_runs_are_stored_in_one_request(api, workspace):
    root = wire_run()
    runs = [root, *(wire_run(parent=root) for _ in range(999))]

    assert api.post("/runs/batch", {"post": runs}).status_code == 202

    assert count_stored_runs() == 1000
