"""Feedback in sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from apps.feedback.services import score_stats
from tests.factories.tracing import ingest, read, stored_run, wire_run

NOTHING = {
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


@pytest.fixture
def give(api):
    def given(run_id, key, **fields):
        response = api.post("/feedback", {"key": key, "run_id": str(run_id), **fields})
        assert response.status_code == 200, response.content

    return given


def test_scores_labels_comments_and_errors_of_a_run(give, api, workspace):
    run_id = stored_run(workspace)
    api.post(
        "/feedback-configs",
        {"feedback_key": "s", "feedback_config": {"type": "continuous"}},
    )
    for score in (0, 0.5, True):
        give(run_id, "s", score=score)
    give(run_id, "s", error=True, feedback_source={"type": "model"})
    for value in ("red", "red", True, 7, {"no": "label"}, "x" * 101):
        give(run_id, "v", value=value)
    for day, text in enumerate(("old", "", "new")):
        give(run_id, "c", comment=text, created_at=f"2026-01-0{day + 1}T00:00:00Z")
    give(run_id, "t", score=1, feedback_thread_id="t1")

    stats = score_stats.by_run(workspace.pk, [run_id])[run_id]

    assert stats["s"] == NOTHING | {
        "n": 3,
        "avg": 0.5,
        "stdev": 0.5,
        "min": 0.0,
        "max": 1.0,
        "errors": 1,
        "sources": ["api", "model"],
        "show_feedback_arrow": True,
    }
    assert stats["v"] == NOTHING | {"n": 4, "values": {"red": 2, "true": 1, "7": 1}}
    assert stats["c"] == NOTHING | {"comments": ["new", "old"]}
    assert stats["t"]["contains_thread_feedback"] is True
    assert (stats["t"]["n"], stats["t"]["stdev"]) == (1, None)


def test_of_traces_threads_and_projects(give, api, workspace):
    root = wire_run(session_name="shop", extra={"metadata": {"thread_id": "t1"}})
    child = wire_run(root, extra={"metadata": {"thread_id": "t1"}})
    other = wire_run(session_name="shop")
    ingest(workspace, root, child, other)
    project_id = read(workspace, root["id"]).row.project_id
    root_id = read(workspace, root["id"]).row.id
    for run, score in ((root, 0), (child, 1), (other, 4)):
        give(run["id"], "s", score=score)
    api.post("/feedback", {"key": "s", "session_id": str(project_id), "score": 9})

    traces = score_stats.by_trace(workspace.pk, [root_id])
    threads = score_stats.by_thread(workspace.pk, project_id, ["t1", "t2"])
    projects = score_stats.by_project(workspace.pk, [project_id])
    runs = score_stats.by_project_runs(workspace.pk, [project_id])
    roots = score_stats.by_project_runs(workspace.pk, [project_id], roots_only=True)

    assert {key: of["s"]["avg"] for key, of in traces.items()} == {root_id: 0.5}
    assert {key: of["s"]["avg"] for key, of in threads.items()} == {"t1": 0.5}
    assert {key: of["s"]["avg"] for key, of in projects.items()} == {project_id: 9.0}
    assert (runs[project_id]["s"]["n"], runs[project_id]["s"]["max"]) == (3, 4.0)
    assert roots[project_id]["s"]["n"] == 2


def test_of_a_projects_runs_within_a_time(give, workspace):
    now = datetime.now(UTC)
    old, new = (
        stored_run(workspace, session_name="shop", start=now - timedelta(days=days))
        for days in (9, 1)
    )
    project_id = read(workspace, old).row.project_id
    give(old, "s", score=1, value="old")
    give(new, "s", score=3, value="new", feedback_source={"type": "model"})

    def stats(**bounds):
        return score_stats.by_project_runs(workspace.pk, [project_id], **bounds)

    week = now - timedelta(days=7)
    assert stats()[project_id]["s"] == NOTHING | {
        "n": 2,
        "avg": 2.0,
        "stdev": pytest.approx(2**0.5),
        "min": 1.0,
        "max": 3.0,
        "values": {"old": 1, "new": 1},
        "sources": ["api", "model"],
    }
    assert stats(started_from=week)[project_id]["s"]["values"] == {"new": 1}
    assert stats(started_until=week)[project_id]["s"]["values"] == {"old": 1}
    assert stats(started_from=now) == {}


def test_another_workspaces_feedback_does_not_count(give, api_of, workspace, stranger):
    run_id = stored_run(workspace, session_name="shop")
    project_id = read(workspace, run_id).row.project_id
    give(run_id, "s", score=1)

    for stats in (
        score_stats.by_run(stranger.pk, [run_id]),
        score_stats.by_trace(stranger.pk, [run_id]),
        score_stats.by_project(stranger.pk, [project_id]),
        score_stats.by_project_runs(stranger.pk, [project_id]),
    ):
        assert stats == {}


@pytest.fixture
def statements(monkeypatch):
    """What is executed, by Django's cursors and by psycopg's own."""
    executed = []
    execute = psycopg.Cursor.execute

    def counted(self, query, *args, **kwargs):
        executed.append(query)
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    return executed


def test_a_page_costs_one_query_however_long(give, workspace, statements):
    runs = [stored_run(workspace) for _ in range(20)]
    for run_id in runs:
        give(run_id, "s", score=1)
    statements.clear()

    stats = score_stats.by_run(workspace.pk, runs)

    assert len(statements) == 1
    assert len(stats) == 20


def test_labels_and_comments_are_bounded(give, workspace):
    run_id = stored_run(workspace)
    for number in range(score_stats.MAX_COMMENTS + 2):
        give(run_id, "s", comment=f"comment {number}")

    stats = score_stats.by_run(workspace.pk, [run_id])[run_id]

    assert len(stats["s"]["comments"]) == score_stats.MAX_COMMENTS


def test_nothing_is_asked_of_nothing(workspace, statements):
    assert score_stats.by_run(workspace.pk, []) == {}
    assert score_stats.by_project_runs(workspace.pk, []) == {}

    assert statements == []
