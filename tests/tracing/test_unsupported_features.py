"""Lists of features that Slipway does not have are empty, and their other routes answer 404."""

from __future__ import annotations

import uuid

import pytest

from tests.factories.tracing import ingest, wire_run


@pytest.mark.parametrize(
    "path",
    [
        "/v1/platform/sessions/{project}/agent-versions",
    ],
)
def test_lists_of_unsupported_objects_are_empty(api, project, path):
    response = api.get(path.format(project=project.pk))

    assert (response.status_code, response.json()) == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "/v1/platform/issues", 404),
    ],
)
def test_unsupported_routes_are_rejected(api, method, path, status):
    response = getattr(api, method)(path, *([{}] if method == "post" else []))

    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)


def test_an_unknown_type_of_rules_is_rejected(api):
    assert api.get("/runs/rules", type="weekly").status_code == 422


def test_filtering_by_an_unused_tag_gives_empty_lists(api, project):
    tag = str(uuid.UUID(int=7))
    title = {"title": "a"}
    assert api.post("/charts/section", title).status_code == 200

    assert api.get("/sessions", tag_value_id=tag).json() == []
    assert api.get("/v2/sessions", tag_value_id=tag).json()["items"] == []
    assert api.get("/charts/section", tag_value_id=tag).json() == []
    assert [section["title"] for section in api.get("/charts/section").json()] == ["a"]


def test_the_runs_of_a_trace_are_streamed_as_patches(api, workspace, project):
    root = wire_run()
    ingest(workspace, root)

    path = f"/v2/traces/{root['id']}/runs?project_id={project.pk}"

    response = api.client.get(path, headers={"Accept": "text/event-stream"})

    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.content.count(b"event: data\n") == 2
    assert root["id"].encode() in response.content
