"""POST /runs/group and /runs/group/stats."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.trace_store.postgres.writing import delete_runs
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import NOON, model_call, project_of, roll_up, run, settle

pytestmark = pytest.mark.django_db


def turn(minutes, thread, **fields):
    return run(minutes, extra={"metadata": {"thread_id": thread}}, **fields)


def ask(api, workspace, **body):
    said = {"session_id": str(project_of(workspace)), "group_by": "conversation"} | body
    response = api.post("/runs/group", said)
    assert response.status_code == 200, response.content
    return response.json()


def keys(answer):
    return [group["group_key"] for group in answer["groups"]]


def test_anonymous_is_refused(client, db):
    assert client.post("/runs/group", {}, content_type="application/json").status_code == 401


def test_a_stranger_finds_no_conversation(api_of, workspace, stranger):
    ingest(workspace, turn(0, "sentinel"))

    assert ask(api_of(stranger), workspace) == {"groups": [], "total": 0}


def test_conversations_tell_their_turns(api, workspace):
    first = turn(0, "t-1", seconds=2, inputs={"question": "first?"})
    last = turn(5, "t-1", seconds=4, outputs={"answer": "last"}, error="broke")
    ingest(workspace, first, model_call(1, below=first, cost=0.25), last, turn(3, "t-2"), run(9))

    for step in (lambda: None, settle, roll_up):
        step()
        answer = ask(api, workspace)
        assert answer["total"] == 2
        assert keys(answer) == ["t-1", "t-2"]
        group = answer["groups"][0]
        assert (group["count"], group["num_errored_turns"]) == (2, 1)
        assert (group["total_tokens"], group["total_cost"]) == (15, "0.25")
        assert (group["latency_p50"], group["latency_p99"]) == (2.0, 4.0)
        assert "first?" in group["first_inputs"]
        assert "last" in group["last_outputs"]
        assert (group["first_trace_id"], group["last_trace_id"]) == (first["id"], last["id"])
        found = api.post(
            "/runs/query",
            {"session": [str(project_of(workspace))], "is_root": True, "filter": group["filter"]},
        ).json()["runs"]
        assert {one["id"] for one in found} == {first["id"], last["id"]}


def test_pages_follow_one_another_until_none_is_left(api, workspace):
    ingest(workspace, *[turn(n, f"t-{n}") for n in range(5)])
    settle()
    ingest(workspace, turn(20, "t-0"))

    pages = [ask(api, workspace, offset=at, limit=2) for at in (0, 2, 4, 6)]

    assert [keys(page) for page in pages] == [["t-0", "t-4"], ["t-3", "t-2"], ["t-1"], []]
    assert {page["total"] for page in pages} == {5}


def test_filters_and_times_choose_turns(api, workspace):
    ingest(workspace, turn(0, "t-1"), turn(1, "t-1", error="broke"), turn(2, "t-2"))
    settle()

    failed = ask(api, workspace, filter="neq(error, null)")
    assert (keys(failed), failed["groups"][0]["count"], failed["total"]) == (["t-1"], 1, 1)
    late = ask(api, workspace, start_time=(NOON + timedelta(minutes=2)).isoformat())
    assert (keys(late), late["total"]) == (["t-2"], 1)
    early = ask(api, workspace, end_time=NOON.isoformat())
    assert (keys(early), early["groups"][0]["count"]) == (["t-1"], 1)


def test_a_conversation_goes_with_its_turns(api, workspace):
    ingest(workspace, turn(0, "t-1"))
    settle()
    delete_runs.delete_project_runs(workspace.pk, project_of(workspace))
    settle()

    assert ask(api, workspace) == {"groups": [], "total": 0}


def test_all_conversations_come_to_these_figures(api, workspace):
    ingest(workspace, turn(0, "t-1", seconds=2), turn(1, "t-2", seconds=4), run(3, seconds=9))

    response = api.post("/runs/group/stats", {"session_id": str(project_of(workspace))})

    stats = response.json()
    assert (stats["group_count"], stats["run_count"]) == (2, 2)
    assert stats["latency_p99"] == 4.0
