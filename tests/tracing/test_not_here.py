"""What this server has not: clients that look find nothing, those that ask are told why."""

from __future__ import annotations

import uuid

import pytest

from apps.tracing.services import ensure_project
from tests.factories.tracing import ingest, wire_run


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/runs/rules", []),
        ("/api/v1/runs/rules?type=session&name_contains=a&sampling=1", []),
        ("/v2/runs/rules", {"items": [], "next_cursor": None}),
        ("/sessions/{project}/insights?limit=5", {"clustering_jobs": []}),
        ("/v1/platform/issues?session_id={project}&limit=50&offset=0", []),
        ("/v1/platform/sessions/{project}/agent-versions", []),
    ],
)
def test_lists_are_empty(api, project, path, expected):
    response = api.get(path.format(project=project.pk))

    assert (response.status_code, response.json()) == (200, expected)


@pytest.mark.parametrize(
    "path",
    [
        "/runs/rules",
        "/runs/generate-query",
        "/v2/ai-search/parse",
        "/sessions/{project}/insights",
    ],
)
def test_what_would_be_made_is_refused_in_words(api, project, path):
    response = api.post(path.format(project=project.pk), {"query": "slow runs"})

    assert (response.status_code, response.json()["code"]) == (400, "not_here")
    assert isinstance(response.json()["detail"], str)


@pytest.mark.parametrize("part", ["", "/logs", "/logs/v2", "/last_applied", "/trigger"])
@pytest.mark.parametrize("method", ["get", "post", "patch", "delete"])
def test_no_rule_has_any_id(api, method, part):
    path = f"/runs/rules/{uuid.UUID(int=7)}{part}"

    body = [{}] if method in {"post", "patch"} else []
    assert getattr(api, method)(path, *body).status_code == 404


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
