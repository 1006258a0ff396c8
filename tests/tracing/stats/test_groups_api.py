"""POST /runs/group and /runs/group/stats."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.trace_store.postgres.writing import delete_runs
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import (
    NOON,
    build_model_run,
    build_rollups,
    build_run,
    process_pending_runs,
    project_id_of,
)

pytestmark = pytest.mark.django_db


def build_turn(minutes, thread, **fields):
    return build_run(minutes, extra={"metadata": {"thread_id": thread}}, **fields)


def query_groups(api, workspace, **body):
    params = {"session_id": str(project_id_of(workspace)), "group_by": "conversation"} | body
    response = api.post("/runs/group", params)
    assert response.status_code == 200, response.content
    return response.json()


def group_keys(page):
    return [group["group_key"] for group in page["groups"]]


def test_anonymous_is_rejected(client, db):
    assert client.post("/runs/group", {}, content_type="application/json").status_code == 401


def test_an_outsider_finds_no_conversation(make_api, workspace, other_workspace):
    ingest(workspace, build_turn(0, "sentinel"))

    assert query_groups(make_api(other_workspace), workspace) == {"groups": [], "total": 0}


def test_a_conversation_has_the_statistics_of_its_turns(api, workspace):
    first = build_turn(0, "t-1", seconds=2, inputs={"question": "first?"})
    last = build_turn(5, "t-1", seconds=4, outputs={"answer": "last"}, error="broke")
    ingest(
        workspace,
        first,
        build_model_run(1, parent=first, cost=0.25),
        last,
        build_turn(3, "t-2"),
        build_run(9),
    )

    for advance in (lambda: None, process_pending_runs, build_rollups):
        advance()
        page = query_groups(api, workspace)
        assert page["total"] == 2
        assert group_keys(page) == ["t-1", "t-2"]
        group = page["groups"][0]
        assert (group["count"], group["num_errored_turns"]) == (2, 1)
        assert (group["total_tokens"], group["total_cost"]) == (15, "0.25")
        assert (group["latency_p50"], group["latency_p99"]) == (2.0, 4.0)
        assert "first?" in group["first_inputs"]
        assert "last" in group["last_outputs"]
        assert (group["first_trace_id"], group["last_trace_id"]) == (first["id"], last["id"])
        runs = api.post(
            "/runs/query",
            {
                "session": [str(project_id_of(workspace))],
                "is_root": True,
                "filter": group["filter"],
            },
        ).json()["runs"]
        assert {run["id"] for run in runs} == {first["id"], last["id"]}


def test_groups_are_paged_until_an_empty_page(api, workspace):
    ingest(workspace, *[build_turn(n, f"t-{n}") for n in range(5)])
    process_pending_runs()
    ingest(workspace, build_turn(20, "t-0"))

    pages = [query_groups(api, workspace, offset=at, limit=2) for at in (0, 2, 4, 6)]

    assert [group_keys(page) for page in pages] == [["t-0", "t-4"], ["t-3", "t-2"], ["t-1"], []]
    assert {page["total"] for page in pages} == {5}


def test_filters_and_times_select_turns(api, workspace):
    ingest(
        workspace, build_turn(0, "t-1"), build_turn(1, "t-1", error="broke"), build_turn(2, "t-2")
    )
    process_pending_runs()

    failed = query_groups(api, workspace, filter="neq(error, null)")
    assert (group_keys(failed), failed["groups"][0]["count"], failed["total"]) == (["t-1"], 1, 1)
    late = query_groups(api, workspace, start_time=(NOON + timedelta(minutes=2)).isoformat())
    assert (group_keys(late), late["total"]) == (["t-2"], 1)
    early = query_groups(api, workspace, end_time=NOON.isoformat())
    assert (group_keys(early), early["groups"][0]["count"]) == (["t-1"], 1)


def test_a_conversation_disappears_with_its_turns(api, workspace):
    ingest(workspace, build_turn(0, "t-1"))
    process_pending_runs()
    delete_runs.delete_project_runs(workspace.pk, project_id_of(workspace))
    process_pending_runs()

    assert query_groups(api, workspace) == {"groups": [], "total": 0}


def test_group_stats_count_all_conversations(api, workspace):
    ingest(
        workspace,
        build_turn(0, "t-1", seconds=2),
        build_turn(1, "t-2", seconds=4),
        build_run(3, seconds=9),
    )

    response = api.post("/runs/group/stats", {"session_id": str(project_id_of(workspace))})

    stats = response.json()
    assert (stats["group_count"], stats["run_count"]) == (2, 2)
    assert stats["latency_p99"] == 4.0
