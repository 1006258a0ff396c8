"""Public links: what they open, and that they open nothing else."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.tracing.models import Project, Share
from apps.tracing.services import sharing
from tests.factories.tracing import form, ingest, read, stored_run, wire_run


@pytest.fixture
def anybody():
    return Client()


@pytest.fixture
def trace(workspace):
    """A root and its child, and beside it a trace that is nobody's business."""
    root = wire_run(session_name="shop", name="root")
    child = wire_run(root, name="child")
    ingest(workspace, root, child, wire_run(session_name="shop", name="other"))
    return root, child


@pytest.fixture
def token(api, trace):
    return api.put(f"/runs/{trace[0]['id']}/share", {}).json()["share_token"]


def post(client, path, body):
    return client.post(path, body, content_type="application/json")


def test_a_link_opens_the_whole_trace_and_nothing_else(anybody, api, workspace, trace, token):
    root, child = trace
    other = str(stored_run(workspace, session_name="shop"))

    opened = anybody.get(f"/public/{token}/run").json()
    below = anybody.get(f"/public/{token}/run/{child['id']}").json()
    everything = post(anybody, f"/public/{token}/runs/query", {}).json()

    assert (opened["id"], opened["outputs"]) == (root["id"], {"answer": "because"})
    assert below["parent_run_id"] == root["id"]
    assert [run["id"] for run in everything["runs"]] == [root["id"], child["id"]]
    assert everything["cursors"] == {"next": None, "prev": None}
    assert anybody.get(f"/public/{token}/run/{other}").status_code == 404
    asked = post(anybody, f"/public/{token}/runs/query", {"id": [child["id"], other]}).json()
    assert [run["id"] for run in asked["runs"]] == [child["id"]]


def test_a_repeat_keeps_the_first_link(api, trace):
    root, child = trace
    chosen = str(uuid4())
    url = f"/runs/{root['id']}/share"

    first = api.put(url, {"run_id": root["id"], "share_token": chosen})
    again = api.put(url, {"run_id": root["id"], "share_token": str(uuid4())})

    assert first.json() == again.json() == {"run_id": root["id"], "share_token": chosen}
    assert api.get(f"/runs/{child['id']}/share").json()["share_token"] == chosen


def test_a_trace_that_is_not_open_has_no_link(api, trace):
    response = api.get(f"/runs/{trace[0]['id']}/share")

    assert (response.status_code, response.content) == (200, b"null")


def test_a_closed_link_opens_nothing(anybody, api, trace, token):
    url = f"/runs/{trace[0]['id']}/share"

    assert api.delete(url).status_code == 204
    assert api.delete(url).status_code == 204

    assert anybody.get(f"/public/{token}/run").status_code == 404
    assert post(anybody, f"/public/{token}/runs/query", {}).status_code == 404
    assert anybody.get(f"/public/{token}/feedbacks").status_code == 404
    assert api.get(url).json() is None


def test_a_link_of_a_deleted_project_opens_nothing(anybody, api, workspace, token):
    project = Project.objects.for_workspace(workspace).get(name="shop")

    api.delete(f"/sessions/{project.pk}")

    assert anybody.get(f"/public/{token}/run").status_code == 404


def test_another_workspaces_token_is_refused_without_telling(api_of, stranger, trace, token):
    own, foreign = str(stored_run(stranger)), trace[0]["id"]
    theirs = api_of(stranger)

    taken = theirs.put(f"/runs/{own}/share", {"share_token": token})

    assert (taken.status_code, taken.json()["code"]) == (409, "share_token_taken")
    assert theirs.put(f"/runs/{foreign}/share", {}).status_code == 404
    assert theirs.get(f"/runs/{foreign}/share").status_code == 404
    assert theirs.delete(f"/runs/{foreign}/share").status_code == 404
    body = {"share_tokens": [token]}
    theirs.client.delete("/workspaces/current/shared", body, content_type="application/json")
    assert Share.unscoped.filter(token=token).exists()


def test_a_reader_shares_nothing(api_of, workspace, trace):
    reader = api_of(workspace, "read")

    assert reader.put(f"/runs/{trace[0]['id']}/share", {}).status_code == 403
    assert not Share.objects.for_workspace(workspace).exists()


def test_nothing_of_the_house_is_in_what_a_link_shows(anybody, api, workspace, trace):
    root, _ = trace
    ingest(workspace, wire_run(id=root["id"], session_name="shop"))
    user = {"type": "app", "metadata": {"secret": "s"}}
    api.post("/feedback", {"key": "k", "run_id": root["id"], "score": 1, "feedback_source": user})
    attached = wire_run(session_name="shop")
    api.multipart(
        form(
            (f"post.{attached['id']}", attached),
            (f"attachment.{attached['id']}.notes", b"abc", "Content-Type: text/plain"),
        )
    )
    row = read(workspace, root["id"]).row
    tokens = [
        api.put(f"/runs/{run['id']}/share", {}).json()["share_token"] for run in (root, attached)
    ]
    everything = ["ID", "APP_PATH", "SHARE_URL", "PROJECT_ID", "FEEDBACK_STATS", "ATTACHMENTS"]

    answers = []
    for token in tokens:
        run_id = anybody.get(f"/public/{token}/run").json()["id"]
        answers += [
            anybody.get(f"/public/{token}/run"),
            post(anybody, f"/public/{token}/runs/query", {}),
            anybody.get(f"/public/{token}/feedbacks"),
            anybody.get(f"/v2/public/{token}/run/{run_id}", {"selects": everything}),
            post(anybody, f"/v2/public/{token}/runs/query", {"selects": everything}),
        ]

    for answer in answers:
        assert answer.status_code == 200
        text = answer.content.decode()
        assert str(workspace.pk) not in text
        assert str(row.project_id) not in text
        assert "secret" not in text
        assert "/o/" not in text
    assert answers[0].json()["feedback_stats"]["k"]["avg"] == 1.0
    assert answers[2].json()[0]["feedback_source"] == {"type": "app"}
    (file,) = answers[5].json()["s3_urls"].values()
    assert set(file) == {"presigned_url", "mime_type"}
    path = file["presigned_url"].split("//", 1)[1].split("/", 1)[1]
    assert b"".join(anybody.get(f"/{path}").streaming_content) == b"abc"
    api.delete(f"/runs/{attached['id']}/share")
    assert anybody.get(f"/{path}").status_code == 404


def test_feedback_of_other_traces_is_not_shown(anybody, api, workspace, trace, token):
    root, child = trace
    other = str(stored_run(workspace, session_name="shop"))
    for run_id in (root["id"], child["id"], other):
        api.post("/feedback", {"key": "k", "run_id": run_id, "comment": run_id})

    found = anybody.get(f"/public/{token}/feedbacks").json()
    asked = anybody.get(f"/public/{token}/feedbacks", {"run": [child["id"], other]}).json()

    assert {one["comment"] for one in found} == {root["id"], child["id"]}
    assert [one["run_id"] for one in asked] == [child["id"]]


def test_the_second_protocol_shares_and_shows_the_same(anybody, api, trace):
    root, child = trace
    body = {"session_id": None, "trace_id": root["id"]}

    token = api.post(f"/v2/runs/{root['id']}/share", body).json()["share_token"]

    assert api.post(f"/v2/runs/{root['id']}/share", body).json() == {"share_token": token}
    shown = post(anybody, f"/v2/public/{token}/runs/query", {"selects": ["NAME", "STATUS"]}).json()
    assert shown == {
        "items": [
            {"id": root["id"], "name": "root", "status": "SUCCESS"},
            {"id": child["id"], "name": "child", "status": "SUCCESS"},
        ]
    }
    one = anybody.get(f"/v2/public/{token}/run/{child['id']}", {"selects": ["NAME", "OUTPUTS"]})
    assert one.json() == {"id": child["id"], "name": "child", "outputs": {"answer": "because"}}
    assert anybody.get(f"/v2/public/{token}/run/{uuid4()}").status_code == 404
    assert api.delete(f"/v2/runs/{root['id']}/share").status_code == 204
    assert api.delete(f"/v2/runs/{root['id']}/share").status_code == 204
    assert post(anybody, f"/v2/public/{token}/runs/query", {}).status_code == 404


def test_a_shared_thread_opens_its_traces_and_no_other(anybody, api, workspace):
    turns = [
        wire_run(session_name="chat", extra={"metadata": {"thread_id": thread}}, name=name)
        for name, thread in (("one", "t/1"), ("two", "t/1"), ("other", "t2"))
    ]
    step = wire_run(turns[1], name="step")
    ingest(workspace, *turns, step)
    project_id = str(read(workspace, turns[0]["id"]).row.project_id)
    url = "/v2/threads/t/1/share"

    token = api.post(url, {"project_id": project_id}).json()["share_token"]

    assert api.get(url, project_id=project_id).json() == {"share_token": token}
    found = post(anybody, f"/public/{token}/runs/query", {}).json()["runs"]
    assert {run["name"] for run in found} == {"one", "two", "step"}
    assert anybody.get(f"/public/{token}/run").json()["name"] == "one"
    assert anybody.get(f"/public/{token}/run/{turns[2]['id']}").status_code == 404
    assert api.client.delete(f"{url}?project_id={project_id}").status_code == 204
    assert api.get(url, project_id=project_id).json() == {"share_token": None}
    assert anybody.get(f"/public/{token}/run").status_code == 404


def test_a_thread_that_is_not_there_is_not_shared(api, api_of, workspace, stranger):
    run = wire_run(extra={"metadata": {"thread_id": "t"}})
    ingest(workspace, run)
    project_id = str(read(workspace, run["id"]).row.project_id)

    assert api.post("/v2/threads/x/share", {"project_id": project_id}).status_code == 404
    foreign = api_of(stranger).post("/v2/threads/t/share", {"project_id": project_id})
    assert foreign.status_code == 404
    assert not Share.unscoped.exists()


def test_all_that_is_open_is_listed_and_closed_at_once(api, anybody, workspace):
    tokens = []
    for _ in range(3):
        run_id = stored_run(workspace)
        tokens.append(api.put(f"/runs/{run_id}/share", {}).json()["share_token"])

    listed = api.get("/workspaces/current/shared", limit=2).json()["entities"]
    assert [one["share_token"] for one in listed] == [tokens[2], tokens[1]]
    assert {one["type"] for one in listed} == {"run"}

    api.client.delete(
        "/workspaces/current/shared",
        json.dumps({"share_tokens": tokens[:2]}),
        content_type="application/json",
    )
    listed = api.get("/workspaces/current/shared").json()["entities"]
    assert [one["share_token"] for one in listed] == [tokens[2]]


def test_what_cannot_be_understood_is_refused(anybody, api, trace, token):
    root, _ = trace
    other = f"/public/{token}/runs/query"

    assert api.put(f"/runs/{uuid4()}/share", {}).status_code == 404
    assert post(anybody, other, {"id": ["x"]}).status_code == 422
    assert post(anybody, other, {"cursor": "~~~"}).status_code == 400
    assert anybody.get(f"/public/{uuid4()}/run").status_code == 404
    assert anybody.get(f"/v2/public/{token}/run/{root['id']}?selects=ODD").status_code == 422


def test_pages_of_a_link_lead_on(anybody, api, workspace):
    root = wire_run()
    ingest(workspace, root, *(wire_run(root) for _ in range(5)))
    token = api.put(f"/runs/{root['id']}/share", {}).json()["share_token"]

    found, cursor = [], None
    while True:
        body = {"limit": 4, "cursor": cursor}
        page = post(anybody, f"/public/{token}/runs/query", body).json()
        found += [run["id"] for run in page["runs"]]
        cursor = page["cursors"]["next"]
        if cursor is None:
            break

    assert len(found) == len(set(found)) == 6


def test_a_page_of_a_link_costs_the_same_for_one_run_and_many(anybody, api, workspace):
    counts = []
    for size in (1, 30):
        root = wire_run()
        ingest(workspace, root, *(wire_run(root) for _ in range(size)))
        token = api.put(f"/runs/{root['id']}/share", {}).json()["share_token"]
        with CaptureQueriesContext(connection) as queries:
            post(anybody, f"/public/{token}/runs/query", {})
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_the_page_of_a_link_has_its_data(workspace, trace, token):
    shown = sharing.load_shared_trace(token)

    assert shown.opened.row.name == "root"
    assert [row.name for row in shown.runs] == ["root", "child"]


@pytest.mark.parametrize("name", ["message", "tooldef"])
def test_schemas_are_open_to_everybody(anybody, name, settings):
    schema = anybody.get(f"/public/schemas/v1/{name}.json").json()

    assert schema["$id"] == f"{settings.BASE_URL}/public/schemas/v1/{name}.json"
    assert schema["type"] == "object"
