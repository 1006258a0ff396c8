"""Runs that name an agent and its environment instead of a project."""

from __future__ import annotations

import pytest

from apps.core.ids import uuid7
from apps.tracing.models import Project, RetainedTrace, TraceTier
from tests.factories.tracing import ProjectFactory, begun, ended, read, rows, wire_run

ADDRESS = "lrn:agents/support/environments/production"


def addressed(run, address=ADDRESS):
    return {key: value for key, value in run.items() if key != "session_name"} | {
        "address": address
    }


def test_runs_of_one_address_meet_in_one_project(api, workspace):
    first, second = wire_run(), wire_run()
    api.post("/runs/batch", {"post": [addressed(first)]})
    api.post("/runs/batch", {"post": [addressed(begun(second))]})
    api.post("/runs/batch", {"patch": [addressed(ended(second))]})

    project = Project.objects.for_workspace(workspace).get(agent_id="support")
    assert project.agent_environment == "PRODUCTION"
    assert {read(workspace, run["id"]).row.project_id for run in (first, second)} == {project.pk}
    assert read(workspace, second["id"]).row.end_time is not None
    assert rows() == 2


def test_a_project_goes_before_an_address(api, workspace):
    project = ProjectFactory(workspace=workspace)
    run = addressed(wire_run()) | {"session_id": str(project.pk)}

    api.post("/runs/batch", {"post": [run]})

    assert read(workspace, run["id"]).row.project_id == project.pk
    assert not Project.objects.for_workspace(workspace).filter(agent_id="support").exists()


@pytest.mark.parametrize("address", ["", "x", "lrn:agents/a", "lrn:agents/a/environments/moon"])
def test_an_address_of_nothing_refuses_its_run_alone(api, address):
    good, bad = wire_run(), addressed(wire_run(), address)

    response = api.post("/runs/batch", {"post": [good, bad]})

    assert response.status_code == 202
    assert [one["id"] for one in response.json()["errors"]] == [bad["id"]]
    assert rows() == 1


def test_a_run_may_ask_for_its_trace_to_live_long(api, workspace):
    ProjectFactory(workspace=workspace, name="short", trace_tier=TraceTier.SHORT)
    Project.objects.for_workspace(workspace).filter(name="short").update(
        short_since="2020-01-01T00:00:00Z"
    )
    lasting, usual = (wire_run(session_name="short") for _ in range(2))

    api.post(
        "/runs/batch", {"post": [lasting | {"trace_tier": "longlived", "ttl_seconds": 9}, usual]}
    )

    kept = RetainedTrace.objects.for_workspace(workspace).values_list("trace_id", flat=True)
    assert [str(one) for one in kept] == [lasting["id"]]


def test_unknown_fields_are_ignored(api, workspace):
    run = wire_run(
        manifest_id=str(uuid7()), execution_order=1, child_runs=[], ttl_seconds=5, whatever={}
    )

    assert api.post("/runs/batch", {"post": [run]}).json() == {"message": "accepted"}
