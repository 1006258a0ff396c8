"""Runs that name an agent and its environment instead of a project."""

from __future__ import annotations

from datetime import datetime

import pytest

from apps.core.ids import uuid7
from apps.trace_store.models import RetainedTrace
from apps.tracing.models import Project, TraceTier
from tests.factories.tracing import (
    ProjectFactory,
    count_stored_runs,
    end_fields,
    read_run,
    start_fields,
    wire_run,
)

ADDRESS = "lrn:agents/support/environments/production"


def with_address(run, address=ADDRESS):
    return {key: value for key, value in run.items() if key != "session_name"} | {
        "address": address
    }


def test_runs_of_one_address_are_in_one_project(api, workspace):
    first, second = wire_run(), wire_run()
    api.post("/runs/batch", {"post": [with_address(first)]})
    api.post("/runs/batch", {"post": [with_address(start_fields(second))]})
    api.post("/runs/batch", {"patch": [with_address(end_fields(second))]})

    project = Project.objects.for_workspace(workspace).get(agent_id="support")
    assert project.agent_environment == "PRODUCTION"
    assert project.start_time == datetime.fromisoformat(first["start_time"])
    assert {read_run(workspace, run["id"]).row.project_id for run in (first, second)} == {
        project.pk
    }
    assert read_run(workspace, second["id"]).row.end_time is not None
    assert count_stored_runs() == 2


def test_a_session_id_overrides_an_address(api, workspace):
    project = ProjectFactory(workspace=workspace)
    run = with_address(wire_run()) | {"session_id": str(project.pk)}

    api.post("/runs/batch", {"post": [run]})

    assert read_run(workspace, run["id"]).row.project_id == project.pk
    assert not Project.objects.for_workspace(workspace).filter(agent_id="support").exists()


@pytest.mark.parametrize("address", ["", "x", "lrn:agents/a", "lrn:agents/a/environments/moon"])
def test_an_invalid_address_rejects_only_its_run(api, address):
    valid_run, invalid_run = wire_run(), with_address(wire_run(), address)

    response = api.post("/runs/batch", {"post": [valid_run, invalid_run]})

    assert response.status_code == 202
    assert [error["id"] for error in response.json()["errors"]] == [invalid_run["id"]]
    assert count_stored_runs() == 1


def test_a_run_requests_the_long_retention_of_its_trace(api, workspace):
    ProjectFactory(workspace=workspace, name="short", trace_tier=TraceTier.SHORT)
    Project.objects.for_workspace(workspace).filter(name="short").update(
        short_since="2020-01-01T00:00:00Z"
    )
    long_lived, short_lived = (wire_run(session_name="short") for _ in range(2))

    api.post(
        "/runs/batch",
        {"post": [long_lived | {"trace_tier": "longlived", "ttl_seconds": 9}, short_lived]},
    )

    retained_ids = RetainedTrace.objects.for_workspace(workspace).values_list("trace_id", flat=True)
    assert [str(trace_id) for trace_id in retained_ids] == [long_lived["id"]]


def test_unknown_fields_are_ignored(api, workspace):
    run = wire_run(
        manifest_id=str(uuid7()), execution_order=1, child_runs=[], ttl_seconds=5, unknown={}
    )

    assert api.post("/runs/batch", {"post": [run]}).json() == {"message": "accepted"}
