"""POST /runs/stats."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.tracing.services import ensure_default_project, statistics
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import (
    NOON,
    build_model_run,
    build_rollups,
    build_run,
    project_id_of,
)

pytestmark = pytest.mark.django_db


def query_stats(api, **body):
    response = api.post("/runs/stats", body)
    assert response.status_code == 200, response.content
    return response.json()


def test_anonymous_is_rejected(client, db):
    assert client.post("/runs/stats", {}, content_type="application/json").status_code == 401


def test_a_new_project_has_zero_statistics(api, workspace):
    project = ensure_default_project(workspace.pk)

    stats = query_stats(api, session=[str(project.pk)])

    assert stats["run_count"] == 0
    assert stats["total_tokens"] == 0
    assert stats["total_cost"] == "0"
    assert stats["latency_p50"] is stats["error_rate"] is stats["last_run_start_time"] is None
    assert (stats["feedback_stats"], stats["run_facets"]) == ({}, [])


def test_an_outsider_counts_no_runs(make_api, workspace, other_workspace):
    ingest(workspace, build_run(name="sentinel"))

    stats = query_stats(make_api(other_workspace), session=[str(project_id_of(workspace))])

    assert (stats["run_count"], stats["run_facets"]) == (0, [])


def test_all_statistics_of_a_small_population(api, workspace):
    root = build_run(0, seconds=4, name="agent", tags=["prod"], extra={"metadata": {"user": "ann"}})
    call = build_model_run(1, parent=root, seconds=2, cost=0.000002)
    ingest(workspace, root, call, build_run(2, seconds=1, error="broke", name="agent"))
    session = [str(project_id_of(workspace))]

    for _ in range(2):
        stats = query_stats(api, session=session, include_details=True)
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
        facets = {(facet["key"], facet["value"]): facet for facet in stats["run_facets"]}
        assert facets["name", "agent"]["n"] == 2
        assert facets["run_type", "llm"]["n"] == 1
        assert facets["status", "error"]["n"] == 1
        assert facets["tag", "prod"]["n"] == facets["metadata.user", "ann"]["n"] == 1
        for facet in stats["run_facets"]:
            stats_of_facet = query_stats(
                api, session=session, filter=facet["query"], select=["run_count"]
            )
            assert stats_of_facet == {"run_count": facet["n"]}
        build_rollups()


def test_groups_are_returned_by_name(api, workspace):
    ingest(
        workspace, build_run(name="a"), build_run(1, name="a"), build_run(2, name="b", tags=["t"])
    )
    session = [str(project_id_of(workspace))]
    group_by = {"attribute": "name", "max_groups": 1}

    assert query_stats(api, session=session, group_by=group_by, select=["run_count"]) == {
        "a": {"run_count": 2}
    }
    named = query_stats(
        api, session=session, group_by=group_by, groups=["b", "missing"], select=["run_count"]
    )
    assert named == {"b": {"run_count": 1}, "missing": {"run_count": 0}}
    tags = query_stats(api, session=session, group_by={"attribute": "tag"}, select=["run_count"])
    assert tags == {"t": {"run_count": 1}}


def test_an_unknown_statistic_is_rejected(api):
    assert api.post("/runs/stats", {"select": ["colour"]}).status_code == 422


def test_a_filter_on_payloads_counts_the_matching_runs(api, workspace):
    ingest(workspace, build_run(inputs={"q": "zebra stripes"}), build_run(1))
    session = [str(project_id_of(workspace))]

    assert query_stats(api, session=session, filter='search("zebra")', select=["run_count"]) == {
        "run_count": 1
    }


def test_filters_on_root_and_tree_limit_the_counted_runs(api, workspace):
    root = build_run(name="agent")
    ingest(workspace, root, build_model_run(1, parent=root), build_run(2, name="other"))
    session = [str(project_id_of(workspace))]

    of_root = query_stats(
        api, session=session, trace_filter='eq(name, "agent")', select=["run_count"]
    )
    of_tree = query_stats(
        api, session=session, is_root=True, tree_filter='eq(run_type, "llm")', select=["run_count"]
    )

    assert (of_root, of_tree) == ({"run_count": 2}, {"run_count": 1})


def test_statistics_of_several_projects_are_separate(workspace):
    root = build_run(seconds=3, session_name="one")
    ingest(
        workspace,
        root,
        build_model_run(1, parent=root),
        build_run(2, session_name="two", error="broke"),
    )
    first_id, second_id = project_id_of(workspace, "one"), project_id_of(workspace, "two")

    for _ in range(2):
        stats = statistics.project_stats(workspace.pk, [first_id, second_id])
        assert (stats[first_id]["run_count"], stats[second_id]["run_count"]) == (2, 1)
        assert (stats[first_id]["error_rate"], stats[second_id]["error_rate"]) == (0.0, 1.0)
        assert stats[first_id]["latency_p50"] == pytest.approx(3, rel=0.01)
        assert (stats[first_id]["total_tokens"], stats[second_id]["total_tokens"]) == (15, 0)
        build_rollups()
    later_stats = statistics.project_stats(
        workspace.pk, [first_id], since=NOON + timedelta(hours=1)
    )
    assert later_stats[first_id]["run_count"] == 0
