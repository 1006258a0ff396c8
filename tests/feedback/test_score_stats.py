"""Statistics of feedback scores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from apps.feedback.services import score_stats
from tests.factories.tracing import ingest, read_run, stored_run, wire_run

EMPTY_STATS = {
    "n": 0,
    "avg": None,
    "stdev": None,
    "min": None,
    "max": None,
    "errors": 0,
    "values": {},
    "comments": [],
    "sources": ["api"],
    "contains_thread_feedback": False,
    "show_feedback_arrow": False,
}


def test_stats_of_a_run_cover_scores_labels_comments_and_errors(create_feedback, api, workspace):
    run_id = stored_run(workspace)
    api.post(
        "/feedback-configs",
        {"feedback_key": "s", "feedback_config": {"type": "continuous"}},
    )
    for score in (0, 0.5, True):
        create_feedback(run_id, "s", score=score)
    create_feedback(run_id, "s", error=True, feedback_source={"type": "model"})
    for value in ("red", "red", True, 7, {"no": "label"}, "x" * 101):
        create_feedback(run_id, "v", value=value)
    for day, text in enumerate(("old", "", "new")):
        create_feedback(run_id, "c", comment=text, created_at=f"2026-01-0{day + 1}T00:00:00Z")
    create_feedback(run_id, "t", score=1, feedback_thread_id="t1")

    stats = score_stats.by_run(workspace.pk, [run_id])[run_id]

    assert stats["s"] == EMPTY_STATS | {
        "n": 3,
        "avg": 0.5,
        "stdev": 0.5,
        "min": 0.0,
        "max": 1.0,
        "errors": 1,
        "sources": ["api", "model"],
        "show_feedback_arrow": True,
    }
    assert stats["v"] == EMPTY_STATS | {"n": 4, "values": {"red": 2, "true": 1, "7": 1}}
    assert stats["c"] == EMPTY_STATS | {"comments": ["new", "old"]}
    assert stats["t"]["contains_thread_feedback"] is True
    assert (stats["t"]["n"], stats["t"]["stdev"]) == (1, None)


def test_stats_are_computed_for_traces_threads_and_projects(create_feedback, api, workspace):
    root = wire_run(session_name="shop", extra={"metadata": {"thread_id": "t1"}})
    child = wire_run(root, extra={"metadata": {"thread_id": "t1"}})
    other = wire_run(session_name="shop")
    ingest(workspace, root, child, other)
    project_id = read_run(workspace, root["id"]).row.project_id
    root_id = read_run(workspace, root["id"]).row.id
    for run, score in ((root, 0), (child, 1), (other, 4)):
        create_feedback(run["id"], "s", score=score)
    api.post("/feedback", {"key": "s", "session_id": str(project_id), "score": 9})

    traces = score_stats.by_trace(workspace.pk, [root_id])
    threads = score_stats.by_thread(workspace.pk, project_id, ["t1", "t2"])
    projects = score_stats.by_project(workspace.pk, [project_id])
    runs = score_stats.by_project_runs(workspace.pk, [project_id])
    roots = score_stats.by_project_runs(workspace.pk, [project_id], roots_only=True)

    assert {key: stats["s"]["avg"] for key, stats in traces.items()} == {root_id: 0.5}
    assert {key: stats["s"]["avg"] for key, stats in threads.items()} == {"t1": 0.5}
    assert {key: stats["s"]["avg"] for key, stats in projects.items()} == {project_id: 9.0}
    assert (runs[project_id]["s"]["n"], runs[project_id]["s"]["max"]) == (3, 4.0)
    assert roots[project_id]["s"]["n"] == 2


def test_stats_of_a_project_are_limited_by_time(create_feedback, workspace):
    now = datetime.now(UTC)
    old, new = (
        stored_run(workspace, session_name="shop", start=now - timedelta(days=days))
        for days in (9, 1)
    )
    project_id = read_run(workspace, old).row.project_id
    create_feedback(old, "s", score=1, value="old")
    create_feedback(new, "s", score=3, value="new", feedback_source={"type": "model"})

    def read_stats(**bounds):
        return score_stats.by_project_runs(workspace.pk, [project_id], **bounds)

    week = now - timedelta(days=7)
    assert read_stats()[project_id]["s"] == EMPTY_STATS | {
        "n": 2,
        "avg": 2.0,
        "stdev": pytest.approx(2**0.5),
        "min": 1.0,
        "max": 3.0,
        "values": {"old": 1, "new": 1},
        "sources": ["api", "model"],
    }
    assert read_stats(started_from=week)[project_id]["s"]["values"] == {"new": 1}
    assert read_stats(started_until=week)[project_id]["s"]["values"] == {"old": 1}
    assert read_stats(started_from=now) == {}


def test_feedback_of_another_workspace_is_not_counted(
    create_feedback, make_api, workspace, other_workspace
):
    run_id = stored_run(workspace, session_name="shop")
    project_id = read_run(workspace, run_id).row.project_id
    create_feedback(run_id, "s", score=1)

    for stats in (
        score_stats.by_run(other_workspace.pk, [run_id]),
        score_stats.by_trace(other_workspace.pk, [run_id]),
        score_stats.by_project(other_workspace.pk, [project_id]),
        score_stats.by_project_runs(other_workspace.pk, [project_id]),
    ):
        assert stats == {}


@pytest.fixture
def statements(monkeypatch):
    """The statements executed by cursors of Django and psycopg."""
    executed = []
    execute = psycopg.Cursor.execute

    def record(self, query, *args, **kwargs):
        executed.append(query)
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    return executed


def test_stats_of_many_runs_take_one_query(create_feedback, workspace, statements):
    runs = [stored_run(workspace) for _ in range(20)]
    for run_id in runs:
        create_feedback(run_id, "s", score=1)
    statements.clear()

    stats = score_stats.by_run(workspace.pk, runs)

    assert len(statements) == 1
    assert len(stats) == 20


def test_the_number_of_comments_is_limited(create_feedback, workspace):
    run_id = stored_run(workspace)
    for number in range(score_stats.MAX_COMMENTS + 2):
        create_feedback(run_id, "s", comment=f"comment {number}")

    stats = score_stats.by_run(workspace.pk, [run_id])[run_id]

    assert len(stats["s"]["comments"]) == score_stats.MAX_COMMENTS


def test_stats_of_no_runs_take_no_query(workspace, statements):
    assert score_stats.by_run(workspace.pk, []) == {}
    assert score_stats.by_project_runs(workspace.pk, []) == {}

    assert statements == []


def test_scores_of_a_comparison_count_only_for_that_comparison(create_feedback, workspace):
    first, second = (stored_run(workspace, session_name=name) for name in ("one", "two"))
    comparison, other = uuid4(), uuid4()
    create_feedback(first, "s", score=0.5)
    create_feedback(first, "s", score=1, comparative_experiment_id=str(comparison))
    create_feedback(second, "s", score=0, comparative_experiment_id=str(comparison))
    create_feedback(first, "s", score=9, comparative_experiment_id=str(other))
    one, two = (read_run(workspace, run_id).row.project_id for run_id in (first, second))

    assert score_stats.by_run(workspace.pk, [first, second])[first]["s"]["avg"] == 0.5
    assert score_stats.by_trace(workspace.pk, [first, second]).keys() == {first}
    assert score_stats.by_project_runs(workspace.pk, [one, two]).keys() == {one}
    of_comparison = score_stats.by_run(workspace.pk, [first, second], comparison_id=comparison)
    assert of_comparison[first]["s"]["avg"] == 0.75
    assert of_comparison[second]["s"]["avg"] == 0
    stats = score_stats.by_comparison(workspace.pk, [comparison])
    assert {project: item["s"]["avg"] for project, item in stats[comparison].items()} == {
        one: 1,
        two: 0,
    }
    assert score_stats.by_comparison(workspace.pk, []) == {}
    assert score_stats.by_run(workspace.pk, [], comparison_id=comparison) == {}
