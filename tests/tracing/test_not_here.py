"""What nobody made is an empty list; what is not built is not there."""

from __future__ import annotations

import uuid

import pytest

from apps.tracing.services import ensure_project
from tests.factories.tracing import ingest, wire_run


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


@pytest.mark.parametrize(
    "path",
    [
        "/runs/rules",
        "/api/v1/runs/rules?type=session&name_contains=a&sampling=1",
        "/v1/platform/sessions/{project}/agent-versions",
    ],
)
def test_lists_of_what_nobody_made_are_empty(api, project, path):
    response = api.get(path.format(project=project.pk))

    assert (response.status_code, response.json()) == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("post", "/runs/rules", 405),
        ("get", f"/runs/rules/{uuid.UUID(int=7)}", 404),
        ("post", f"/runs/rules/{uuid.UUID(int=7)}/trigger", 404),
        ("post", "/runs/generate-query", 404),
        ("get", "/v1/platform/issues", 404),
    ],
)
def test_what_is_not_built_is_not_there(api, method, path, status):
    response = getattr(api, method)(path, *([{}] if method == "post" else []))

    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)


def test_a_type_of_rules_that_is_none_is_refused(api):
    assert api.get("/runs/rules", type="weekly").status_code == 422


def test_nothing_carries_the_tag_that_is_asked_for(api, project):
    tag = str(uuid.UUID(int=7))
    title = {"title": "a"}
    assert api.post("/charts/section", title).status_code == 200

    assert api.get("/sessions", tag_value_id=tag).json() == []
    assert api.get("/v2/sessions", tag_value_id=tag).json()["items"] == []
    assert api.get("/charts/section", tag_value_id=tag).json() == []
    assert [one["title"] for one in api.get("/charts/section").json()] == ["a"]


def test_the_runs_of_a_trace_come_as_patches_too(api, workspace, project):
    root = wire_run()
    ingest(workspace, root)

    path = f"/v2/traces/{root['id']}/runs?project_id={project.pk}"

    response = api.client.get(path, headers={"Accept": "text/event-stream"})

    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.content.count(b"event: data\n") == 2
    assert root["id"].encode() in response.content
