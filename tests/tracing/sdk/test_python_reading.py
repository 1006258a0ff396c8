"""Reading by the public Python client: filters, trees, threads, statistics, projects."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from langsmith.async_client import AsyncClient
from langsmith.utils import LangSmithConflictError, LangSmithError, LangSmithNotFoundError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    # A module's population belongs to one worker.
    pytest.mark.xdist_group("sdk-reading"),
]


def sorted_names(runs):
    return sorted(run.name for run in runs)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["agent", "agent", "agent", "look up", "model"]),
        ({"is_root": True}, ["agent", "agent", "agent"]),
        ({"is_root": False}, ["look up", "model"]),
        ({"run_type": "llm"}, ["model"]),
        ({"error": True}, ["look up"]),
        ({"filter": 'eq(name, "model")'}, ["model"]),
        ({"filter": "gt(total_tokens, 10)"}, ["agent", "model"]),
        ({"filter": 'lt(latency, "60s")', "run_type": "tool"}, ["look up"]),
        ({"filter": 'has(tags, "turn-1")'}, ["agent"]),
        ({"filter": 'eq(thread_id, "t-2")', "is_root": True}, ["agent"]),
        (
            {
                "filter": 'and(eq(metadata_key, "ls_model_name"), eq(metadata_value, "m-1"))',
            },
            ["model"],
        ),
        ({"filter": 'and(eq(metadata_key, "n"), eq(metadata_value, "2"))'}, ["agent"]),
        ({"filter": 'and(eq(feedback_key, "helpful"), gt(feedback_score, 0.5))'}, ["agent"]),
        ({"filter": 'search("xylograph")'}, ["agent"]),
        ({"query": "xylograph"}, ["agent"]),
        ({"filter": "neq(error, null)"}, ["look up"]),
        ({"filter": 'or(eq(name, "model"), eq(name, "look up"))'}, ["look up", "model"]),
        ({"trace_filter": 'has(tags, "turn-0")', "run_type": "tool"}, ["look up"]),
        ({"tree_filter": 'eq(run_type, "llm")', "is_root": True}, ["agent"]),
        ({"start_time": datetime(2999, 1, 1, tzinfo=UTC)}, []),
        ({"limit": 2, "is_root": True}, ["agent", "agent"]),
    ],
)
def test_runs_are_listed_by_every_kind_of_filter(client, population, params, expected):
    runs = client.list_runs(project_id=population.project_id, **params)

    assert sorted_names(runs) == expected


def test_runs_are_listed_by_ids_traces_and_parents(client, population):
    project = {"project_name": population.project}

    assert [run.id for run in client.list_runs(run_ids=[population.other])] == [population.other]
    trace_runs = client.list_runs(trace_id=population.first, **project)
    assert sorted_names(trace_runs) == ["agent", "look up", "model"]
    children = client.list_runs(parent_run_id=population.first, **project)
    assert sorted_names(children) == ["look up", "model"]


def test_the_error_of_a_malformed_filter_names_the_column(client, population):
    with pytest.raises(LangSmithError, match="column"):
        next(client.list_runs(project_id=population.project_id, filter="eq(name"))


def test_a_run_is_read_with_its_children_totals_and_feedback(client, population):
    run = client.read_run(population.first, load_child_runs=True)

    assert [child.name for child in run.child_runs] == ["look up", "model"]
    assert (run.total_tokens, str(run.total_cost)) == (11, "0.5")
    assert (run.status, run.child_runs[0].status) == ("success", "error")
    assert (run.feedback_stats["helpful"]["n"], run.feedback_stats["helpful"]["avg"]) == (1, 0.25)
    assert run.session_id == population.project_id


def test_the_turns_of_a_thread_are_read_in_order(client, population):
    turns = list(client.read_thread(thread_id="t-1", project_id=population.project_id))

    assert [turn.id for turn in turns] == [population.first, population.second]
    filtered = client.read_thread(
        thread_id="t-1", project_name=population.project, filter='has(tags, "turn-1")'
    )
    assert [turn.id for turn in filtered] == [population.second]


def test_threads_are_listed_with_their_runs(client, population):
    threads = client.list_threads(project_name=population.project)

    assert {thread["thread_id"]: thread["count"] for thread in threads} == {"t-1": 2, "t-2": 1}


def test_statistics_count_the_runs_of_the_project(client, population):
    stats = client.get_run_stats(project_ids=[population.project_id])
    root_stats = client.get_run_stats(project_names=[population.project], is_root=True)

    assert (stats["run_count"], stats["total_tokens"]) == (5, 11)
    assert root_stats["run_count"] == 3
    assert root_stats["latency_p50"] >= 0
    assert stats["feedback_stats"]["helpful"]["n"] == 2


def test_the_url_of_a_run_names_its_project(client, live, population):
    run = client.read_run(population.first)

    url = client.get_run_url(run=run, project_id=population.project_id)

    assert f"/o/{live.workspace_id}/projects/p/{population.project_id}/r/{run.id}" in url


def test_a_project_is_read_with_its_statistics(client, population):
    project = client.read_project(project_id=population.project_id, include_stats=True)

    assert (project.run_count, project.total_tokens) == (5, 11)
    assert project.latency_p50 >= timedelta(0)
    assert project.metadata["purpose"] == "reading"


def test_projects_are_listed_by_part_of_name_and_metadata(client, population):
    part = population.project[-12:]

    assert [project.id for project in client.list_projects(name_contains=part)] == [
        population.project_id
    ]
    projects = client.list_projects(name_contains=part, metadata={"purpose": "reading"})
    assert [project.id for project in projects] == [population.project_id]
    assert list(client.list_projects(name_contains=part, metadata={"purpose": "other"})) == []
    with_stats = client.list_projects(name_contains=part, reference_free=True, include_stats=True)
    assert [project.run_count for project in with_stats] == [5]


def test_a_project_is_created_changed_and_deleted(client):
    name = f"sdk {uuid.uuid4()}"
    project = client.create_project(name, description="first", metadata={"a": 1})
    with pytest.raises(LangSmithConflictError):
        client.create_project(name)

    client.update_project(project.id, name=f"{name} two", metadata={"b": 2})
    changed = client.read_project(project_id=project.id)

    assert (changed.name, changed.description) == (f"{name} two", "first")
    assert changed.metadata["b"] == 2
    client.delete_project(project_name=f"{name} two")
    assert not client.has_project(f"{name} two")
    with pytest.raises(LangSmithNotFoundError):
        client.read_project(project_id=project.id)


def test_a_run_is_shared_read_and_unshared(client, population):
    url = client.share_run(population.first)

    assert client.run_is_shared(population.first)
    assert client.read_run_shared_link(population.first) == url
    token = url.split("/public/")[1].split("/")[0]
    assert client.read_shared_run(token).id == population.first
    assert sorted_names(client.list_shared_runs(token)) == ["agent", "look up", "model"]
    client.unshare_run(population.first)
    assert not client.run_is_shared(population.first)


def test_feedback_is_created_with_a_presigned_url(client, population):
    token = client.create_presigned_feedback_token(population.other, "thumbs")

    client.create_feedback_from_token(token.url, score=1, comment="by a browser")

    (feedback,) = client.list_feedback(run_ids=[population.other], feedback_key=["thumbs"])
    assert (feedback.score, feedback.comment) == (1, "by a browser")


def test_the_asynchronous_client_reads_the_same(live, population):
    async def read():
        async with AsyncClient(api_url=live.api_url, api_key=live.api_key) as client:
            run = await client.read_run(population.first)
            listed = [row.name async for row in client.list_runs(project_id=population.project_id)]
            project = await client.read_project(project_id=population.project_id)
            return run, listed, project

    run, listed, project = asyncio.run(read())

    assert (run.id, sorted(listed)) == (
        population.first,
        ["agent", "agent", "agent", "look up", "model"],
    )
    assert project.name == population.project
