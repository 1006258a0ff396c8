"""POST /runs/stats."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.tracing.services import ensure_default_project, statistics
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import NOON, model_call, project_of, roll_up, run

pytestmark = pytest.mark.django_db


def ask(api, **body):
    response = api.post("/runs/stats", body)
    assert response.status_code == 200, response.content
    return response.json()


def test_anonymous_is_refused(client, db):
    assert client.post("/runs/stats", {}, content_type="application/json").status_code == 401


def test_a_fresh_project_counts_nothing(api, workspace):
    project = ensure_default_project(workspace.pk)

    stats = ask(api, session=[str(project.pk)])

    assert stats["run_count"] == 0
    assert stats["total_tokens"] == 0
    assert stats["total_cost"] == "0"
    assert stats["latency_p50"] is stats["error_rate"] is stats["last_run_start_time"] is None
    assert (stats["feedback_stats"], stats["run_facets"]) == ({}, [])


def test_a_stranger_counts_nothing(api_of, workspace, stranger):
    ingest(workspace, run(name="sentinel"))

    stats = ask(api_of(stranger), session=[str(project_of(workspace))])

    assert (stats["run_count"], stats["run_facets"]) == (0, [])


def test_all_figures_of_a_small_population(api, workspace):
    root = run(0, seconds=4, name="agent", tags=["prod"], extra={"metadata": {"user": "ann"}})
    call = model_call(1, below=root, seconds=2, cost=0.000002)
    ingest(workspace, root, call, run(2, seconds=1, error="broke", name="agent"))
    session = [str(project_of(workspace))]

    for _ in range(2):
        stats = ask(api, session=session, include_details=True)
        assert stats["run_count"] == 3
        assert stats["error_rate"] == pytest.approx(1 / 3)
        assert (stats["prompt_tokens"], stats["completion_tokens"]) == (10, 5)
        assert (stats["total_tokens"], stats["median_tokens"]) == (15, 15)
        assert stats["total_cost"] == stats["prompt_cost"] == "0.000002"
        assert stats["latency_p50"] == pytest.approx(2, rel=0.01)
        assert stats["latency_p99"] == pytest.approx(4, rel=0.01)
        assert stats["latency_avg"] == pytest.approx(7 / 3)
        assert stats["streaming_rate"] == 0.0
        last = (NOON + timedelta(minutes=2)).isoformat().replace("+00:00", "Z")
        assert stats["last_run_start_time"] == last
        facets = {(one["key"], one["value"]): one for one in stats["run_facets"]}
        assert facets["name", "agent"]["n"] == 2
        assert facets["run_type", "llm"]["n"] == 1
        assert facets["status", "error"]["n"] == 1
        assert facets["tag", "prod"]["n"] == facets["metadata.user", "ann"]["n"] == 1
        for facet in stats["run_facets"]:
            found = ask(api, session=session, filter=facet["query"], select=["run_count"])
            assert found == {"run_count": facet["n"]}
        roll_up()


def test_groups_are_objects_of_their_own(api, workspace):
    ingest(workspace, run(name="a"), run(1, name="a"), run(2, name="b", tags=["t"]))
    session = [str(project_of(workspace))]
    by = {"attribute": "name", "max_groups": 1}

    assert ask(api, session=session, group_by=by, select=["run_count"]) == {"a": {"run_count": 2}}
    named = ask(api, session=session, group_by=by, groups=["b", "missing"], select=["run_count"])
    assert named == {"b": {"run_count": 1}, "missing": {"run_count": 0}}
    tags = ask(api, session=session, group_by={"attribute": "tag"}, select=["run_count"])
    assert tags == {"t": {"run_count": 1}}


def test_what_is_no_statistic_cannot_be_selected(api):
    assert api.post("/runs/stats", {"select": ["colour"]}).status_code == 422


def test_a_filter_that_only_payloads_answer_is_counted_run_by_run(api, workspace):
    ingest(workspace, run(inputs={"q": "zebra stripes"}), run(1))
    session = [str(project_of(workspace))]

    assert ask(api, session=session, filter='search("zebra")', select=["run_count"]) == {
        "run_count": 1
    }


def test_filters_on_root_and_tree_limit_what_is_counted(api, workspace):
    root = run(name="agent")
    ingest(workspace, root, model_call(1, below=root), run(2, name="other"))
    session = [str(project_of(workspace))]

    of_root = ask(api, session=session, trace_filter='eq(name, "agent")', select=["run_count"])
    of_tree = ask(
        api, session=session, is_root=True, tree_filter='eq(run_type, "llm")', select=["run_count"]
    )

    assert (of_root, of_tree) == ({"run_count": 2}, {"run_count": 1})


def test_projects_tell_their_statistics_side_by_side(workspace):
    root = run(seconds=3, session_name="one")
    ingest(workspace, root, model_call(1, below=root), run(2, session_name="two", error="broke"))
    one, two = project_of(workspace, "one"), project_of(workspace, "two")

    for _ in range(2):
        stats = statistics.project_stats(workspace.pk, [one, two])
        assert (stats[one]["run_count"], stats[two]["run_count"]) == (2, 1)
        assert (stats[one]["error_rate"], stats[two]["error_rate"]) == (0.0, 1.0)
        assert stats[one]["latency_p50"] == pytest.approx(3, rel=0.01)
        assert (stats[one]["total_tokens"], stats[two]["total_tokens"]) == (15, 0)
        roll_up()
    none = statistics.project_stats(workspace.pk, [one], since=NOON + timedelta(hours=1))
    assert none[one]["run_count"] == 0
