"""Public links open the shared trace or thread and nothing else."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.tracing.models import Project, Share
from tests.factories.tracing import ingest, multipart_body, read_run, stored_run, wire_run


@pytest.fixture
def anonymous():
    return Client()


@pytest.fixture
def trace(workspace):
    """A root run with a child; the project also has a trace that is not shared."""
    root = wire_run(session_name="shop", name="root")
    child = wire_run(root, name="child")
    ingest(workspace, root, child, wire_run(session_name="shop", name="other"))
    return root, child


@pytest.fixture
def token(api, trace):
    return api.put(f"/runs/{trace[0]['id']}/share", {}).json()["share_token"]


def post_json(client, path, body):
    return client.post(path, body, content_type="application/json")


def test_a_link_opens_the_whole_trace_and_nothing_else(anonymous, api, workspace, trace, token):
    root, child = trace
    other = str(stored_run(workspace, session_name="shop"))

    shown_root = anonymous.get(f"/public/{token}/run").json()
    shown_child = anonymous.get(f"/public/{token}/run/{child['id']}").json()
    all_runs = post_json(anonymous, f"/public/{token}/runs/query", {}).json()

    assert (shown_root["id"], shown_root["outputs"]) == (root["id"], {"answer": "because"})
    assert shown_child["parent_run_id"] == root["id"]
    assert [run["id"] for run in all_runs["runs"]] == [root["id"], child["id"]]
    assert all_runs["cursors"] == {"next": None, "prev": None}
    assert anonymous.get(f"/public/{token}/run/{other}").status_code == 404
    selected = post_json(
        anonymous, f"/public/{token}/runs/query", {"id": [child["id"], other]}
    ).json()
    assert [run["id"] for run in selected["runs"]] == [child["id"]]


def test_sharing_again_keeps_the_first_link(api, trace):
    root, child = trace
    token = str(uuid4())
    url = f"/runs/{root['id']}/share"

    first = api.put(url, {"run_id": root["id"], "share_token": token})
    second = api.put(url, {"run_id": root["id"], "share_token": str(uuid4())})

    assert first.json() == second.json() == {"run_id": root["id"], "share_token": token}
    assert api.get(f"/runs/{child['id']}/share").json()["share_token"] == token


def test_a_trace_that_is_not_shared_has_no_link(api, trace):
    response = api.get(f"/runs/{trace[0]['id']}/share")

    assert (response.status_code, response.content) == (200, b"null")


def test_a_revoked_link_opens_nothing(anonymous, api, trace, token):
    url = f"/runs/{trace[0]['id']}/share"

    assert api.delete(url).status_code == 204
    assert api.delete(url).status_code == 204

    assert anonymous.get(f"/public/{token}/run").status_code == 404
    assert post_json(anonymous, f"/public/{token}/runs/query", {}).status_code == 404
    assert anonymous.get(f"/public/{token}/feedbacks").status_code == 404
    assert api.get(url).json() is None


def test_a_link_of_a_deleted_project_opens_nothing(anonymous, api, workspace, token):
    project = Project.objects.for_workspace(workspace).get(name="shop")

    api.delete(f"/sessions/{project.pk}")

    assert anonymous.get(f"/public/{token}/run").status_code == 404


def test_a_share_token_of_another_workspace_is_rejected(make_api, other_workspace, trace, token):
    own, foreign = str(stored_run(other_workspace)), trace[0]["id"]
    other_api = make_api(other_workspace)

    conflict = other_api.put(f"/runs/{own}/share", {"share_token": token})

    assert (conflict.status_code, conflict.json()["code"]) == (409, "share_token_taken")
    assert other_api.put(f"/runs/{foreign}/share", {}).status_code == 404
    assert other_api.get(f"/runs/{foreign}/share").status_code == 404
    assert other_api.delete(f"/runs/{foreign}/share").status_code == 404
    body = {"share_tokens": [token]}
    other_api.client.delete("/workspaces/current/shared", body, content_type="application/json")
    assert Share.unscoped.filter(token=token).exists()


def test_a_reader_shares_nothing(make_api, workspace, trace):
    reader = make_api(workspace, "read")

    assert reader.put(f"/runs/{trace[0]['id']}/share", {}).status_code == 403
    assert not Share.objects.for_workspace(workspace).exists()


def test_a_link_shows_no_ids_of_the_workspace_or_project(anonymous, api, workspace, trace):
    root, _ = trace
    ingest(workspace, wire_run(id=root["id"], session_name="shop"))
    user = {"type": "app", "metadata": {"secret": "s"}}
    api.post("/feedback", {"key": "k", "run_id": root["id"], "score": 1, "feedback_source": user})
    run_with_file = wire_run(session_name="shop")
    api.multipart(
        multipart_body(
            (f"post.{run_with_file['id']}", run_with_file),
            (f"attachment.{run_with_file['id']}.notes", b"abc", "Content-Type: text/plain"),
        )
    )
    row = read_run(workspace, root["id"]).row
    tokens = [
        api.put(f"/runs/{run['id']}/share", {}).json()["share_token"]
        for run in (root, run_with_file)
    ]
    selects = ["ID", "APP_PATH", "SHARE_URL", "PROJECT_ID", "FEEDBACK_STATS", "ATTACHMENTS"]

    responses = []
    for token in tokens:
        run_id = anonymous.get(f"/public/{token}/run").json()["id"]
        responses += [
            anonymous.get(f"/public/{token}/run"),
            post_json(anonymous, f"/public/{token}/runs/query", {}),
            anonymous.get(f"/public/{token}/feedbacks"),
            anonymous.get(f"/v2/public/{token}/run/{run_id}", {"selects": selects}),
            post_json(anonymous, f"/v2/public/{token}/runs/query", {"selects": selects}),
        ]

    for response in responses:
        assert response.status_code == 200
        text = response.content.decode()
        assert str(workspace.pk) not in text
        assert str(row.project_id) not in text
        assert "secret" not in text
        assert "/o/" not in text
    assert responses[0].json()["feedback_stats"]["k"]["avg"] == 1.0
    assert responses[2].json()[0]["feedback_source"] == {"type": "app"}
    (file,) = responses[5].json()["s3_urls"].values()
    assert set(file) == {"presigned_url", "mime_type"}
    path = file["presigned_url"].split("//", 1)[1].split("/", 1)[1]
    assert b"".join(anonymous.get(f"/{path}").streaming_content) == b"abc"
    api.delete(f"/runs/{run_with_file['id']}/share")
    assert anonymous.get(f"/{path}").status_code == 404


def test_feedback_of_other_traces_is_not_shown(anonymous, api, workspace, trace, token):
    root, child = trace
    other = str(stored_run(workspace, session_name="shop"))
    for run_id in (root["id"], child["id"], other):
        api.post("/feedback", {"key": "k", "run_id": run_id, "comment": run_id})

    all_feedback = anonymous.get(f"/public/{token}/feedbacks").json()
    selected = anonymous.get(f"/public/{token}/feedbacks", {"run": [child["id"], other]}).json()

    assert {feedback["comment"] for feedback in all_feedback} == {root["id"], child["id"]}
    assert [feedback["run_id"] for feedback in selected] == [child["id"]]


def test_api_v2_shares_and_shows_the_same_trace(anonymous, api, trace):
    root, child = trace
    body = {"session_id": None, "trace_id": root["id"]}

    token = api.post(f"/v2/runs/{root['id']}/share", body).json()["share_token"]

    assert api.post(f"/v2/runs/{root['id']}/share", body).json() == {"share_token": token}
    page = post_json(
        anonymous, f"/v2/public/{token}/runs/query", {"selects": ["NAME", "STATUS"]}
    ).json()
    assert page == {
        "items": [
            {"id": root["id"], "name": "root", "status": "SUCCESS"},
            {"id": child["id"], "name": "child", "status": "SUCCESS"},
        ]
    }
    run_response = anonymous.get(
        f"/v2/public/{token}/run/{child['id']}", {"selects": ["NAME", "OUTPUTS"]}
    )
    assert run_response.json() == {
        "id": child["id"],
        "name": "child",
        "outputs": {"answer": "because"},
    }
    assert anonymous.get(f"/v2/public/{token}/run/{uuid4()}").status_code == 404
    assert api.delete(f"/v2/runs/{root['id']}/share").status_code == 204
    assert api.delete(f"/v2/runs/{root['id']}/share").status_code == 204
    assert post_json(anonymous, f"/v2/public/{token}/runs/query", {}).status_code == 404


def test_a_shared_thread_opens_its_traces_and_no_other(anonymous, api, workspace):
    turns = [
        wire_run(session_name="chat", extra={"metadata": {"thread_id": thread}}, name=name)
        for name, thread in (("one", "t/1"), ("two", "t/1"), ("other", "t2"))
    ]
    step = wire_run(turns[1], name="step")
    ingest(workspace, *turns, step)
    project_id = str(read_run(workspace, turns[0]["id"]).row.project_id)
    url = "/v2/threads/t/1/share"

    token = api.post(url, {"project_id": project_id}).json()["share_token"]

    assert api.get(url, project_id=project_id).json() == {"share_token": token}
    runs = post_json(anonymous, f"/public/{token}/runs/query", {}).json()["runs"]
    assert {run["name"] for run in runs} == {"one", "two", "step"}
    assert anonymous.get(f"/public/{token}/run").json()["name"] == "one"
    assert anonymous.get(f"/public/{token}/run/{turns[2]['id']}").status_code == 404
    assert api.client.delete(f"{url}?project_id={project_id}").status_code == 204
    assert api.get(url, project_id=project_id).json() == {"share_token": None}
    assert anonymous.get(f"/public/{token}/run").status_code == 404


def test_a_missing_or_foreign_thread_is_not_shared(api, make_api, workspace, other_workspace):
    run = wire_run(extra={"metadata": {"thread_id": "t"}})
    ingest(workspace, run)
    project_id = str(read_run(workspace, run["id"]).row.project_id)

    assert api.post("/v2/threads/x/share", {"project_id": project_id}).status_code == 404
    foreign = make_api(other_workspace).post("/v2/threads/t/share", {"project_id": project_id})
    assert foreign.status_code == 404
    assert not Share.unscoped.exists()


def test_public_links_are_listed_and_revoked_together(api, anonymous, workspace):
    tokens = []
    for _ in range(3):
        run_id = stored_run(workspace)
        tokens.append(api.put(f"/runs/{run_id}/share", {}).json()["share_token"])

    listed = api.get("/workspaces/current/shared", limit=2).json()["entities"]
    assert [share["share_token"] for share in listed] == [tokens[2], tokens[1]]
    assert {share["type"] for share in listed} == {"run"}

    api.client.delete(
        "/workspaces/current/shared",
        json.dumps({"share_tokens": tokens[:2]}),
        content_type="application/json",
    )
    listed = api.get("/workspaces/current/shared").json()["entities"]
    assert [share["share_token"] for share in listed] == [tokens[2]]


def test_invalid_requests_for_public_links_are_rejected(anonymous, api, trace, token):
    root, _ = trace
    query_url = f"/public/{token}/runs/query"

    assert api.put(f"/runs/{uuid4()}/share", {}).status_code == 404
    assert post_json(anonymous, query_url, {"id": ["x"]}).status_code == 422
    assert post_json(anonymous, query_url, {"cursor": "~~~"}).status_code == 400
    assert anonymous.get(f"/public/{uuid4()}/run").status_code == 404
    assert anonymous.get(f"/v2/public/{token}/run/{root['id']}?selects=ODD").status_code == 422


def test_the_runs_of_a_link_are_paged(anonymous, api, workspace):
    root = wire_run()
    ingest(workspace, root, *(wire_run(root) for _ in range(5)))
    token = api.put(f"/runs/{root['id']}/share", {}).json()["share_token"]

    run_ids, cursor = [], None
    while True:
        body = {"limit": 4, "cursor": cursor}
        page = post_json(anonymous, f"/public/{token}/runs/query", body).json()
        run_ids += [run["id"] for run in page["runs"]]
        cursor = page["cursors"]["next"]
        if cursor is None:
            break

    assert len(run_ids) == len(set(run_ids)) == 6


@pytest.mark.usefixtures("unexpired_caches")
def test_the_number_of_queries_of_a_link_does_not_grow_with_the_runs(anonymous, api, workspace):
    counts = []
    for size in (1, 30):
        root = wire_run()
        ingest(workspace, root, *(wire_run(root) for _ in range(size)))
        token = api.put(f"/runs/{root['id']}/share", {}).json()["share_token"]
        with CaptureQueriesContext(connection) as queries:
            post_json(anonymous, f"/public/{token}/runs/query", {})
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_page_of_a_link_shows_the_initial_run_and_all_runs_of_the_trace(workspace, trace, token):
    page = Client().get(reverse("public-trace", args=[token]))

    assert page.context["run"].row.name == "root"
    assert [run.row.name for run in page.context["tree"].runs] == ["root", "child"]


@pytest.mark.parametrize("name", ["message", "tooldef"])
def test_schemas_are_public(anonymous, name, settings):
    schema = anonymous.get(f"/public/schemas/v1/{name}.json").json()

    assert schema["$id"] == f"{settings.BASE_URL}/public/schemas/v1/{name}.json"
    assert schema["type"] == "object"
