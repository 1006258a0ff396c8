"""Reading by the public Python client: filters, trees, threads, statistics, projects."""

from __future__ import annotations

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


def names(runs):
    return sorted(run.name for run in runs)


@pytest.mark.parametrize(
    ("asked", "expected"),
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
def test_runs_are_listed_by_every_kind_of_filter(client, population, asked, expected):
    found = client.list_runs(project_id=population.project_id, **asked)

    assert names(found) == expected


def test_runs_are_listed_by_ids_traces_and_parents(client, population):
    of_project = {"project_name": population.project}

    assert [run.id for run in client.list_runs(run_ids=[population.other])] == [population.other]
    in_trace = client.list_runs(trace_id=population.first, **of_project)
    assert names(in_trace) == ["agent", "look up", "model"]
    below = client.list_runs(parent_run_id=population.first, **of_project)
    assert names(below) == ["look up", "model"]


def test_a_filter_that_makes_no_sense_is_told_with_its_column(client, population):
    with pytest.raises(LangSmithError, match="column"):
        next(client.list_runs(project_id=population.project_id, filter="eq(name"))


def test_a_run_comes_with_its_children_sums_and_feedback(client, population):
    run = client.read_run(population.first, load_child_runs=True)

    assert [child.name for child in run.child_runs] == ["look up", "model"]
    assert (run.total_tokens, str(run.total_cost)) == (11, "0.5")
    assert (run.status, run.child_runs[0].status) == ("success", "error")
    assert (run.feedback_stats["helpful"]["n"], run.feedback_stats["helpful"]["avg"]) == (1, 0.25)
    assert run.session_id == population.project_id


def test_a_thread_is_read_in_its_order(client, population):
    turns = list(client.read_thread(thread_id="t-1", project_id=population.project_id))

    assert [turn.id for turn in turns] == [population.first, population.second]
    some = client.read_thread(
        thread_id="t-1", project_name=population.project, filter='has(tags, "turn-1")'
    )
    assert [turn.id for turn in some] == [population.second]


def test_threads_are_listed_with_their_runs(client, population):
    threads = client.list_threads(project_name=population.project)

    assert {thread["thread_id"]: thread["count"] for thread in threads} == {"t-1": 2, "t-2": 1}


def test_statistics_tell_what_the_project_holds(client, population):
    stats = client.get_run_stats(project_ids=[population.project_id])
    of_roots = client.get_run_stats(project_names=[population.project], is_root=True)

    assert (stats["run_count"], stats["total_tokens"]) == (5, 11)
    assert of_roots["run_count"] == 3
    assert of_roots["latency_p50"] >= 0
    assert stats["feedback_stats"]["helpful"]["n"] == 2


def test_the_address_of_a_run_is_told(client, live, population):
    run = client.read_run(population.first)

    url = client.get_run_url(run=run, project_id=population.project_id)

    assert f"/o/{live.workspace_id}/projects/p/{population.project_id}/r/{run.id}" in url


def test_a_project_tells_its_figures(client, population):
    told = client.read_project(project_id=population.project_id, include_stats=True)

    assert (told.run_count, told.total_tokens) == (5, 11)
    assert told.latency_p50 >= timedelta(0)
    assert told.metadata["purpose"] == "reading"


def test_projects_are_found_by_name_part_and_metadata(client, population):
    part = population.project[-12:]

    assert [one.id for one in client.list_projects(name_contains=part)] == [population.project_id]
    found = client.list_projects(name_contains=part, metadata={"purpose": "reading"})
    assert [one.id for one in found] == [population.project_id]
    assert list(client.list_projects(name_contains=part, metadata={"purpose": "other"})) == []
    plain = client.list_projects(name_contains=part, reference_free=True, include_stats=True)
    assert [one.run_count for one in plain] == [5]


def test_a_project_is_made_changed_and_deleted(client):
    name = f"sdk {uuid.uuid4()}"
    made = client.create_project(name, description="first", metadata={"a": 1})
    with pytest.raises(LangSmithConflictError):
        client.create_project(name)

    client.update_project(made.id, name=f"{name} two", metadata={"b": 2})
    changed = client.read_project(project_id=made.id)

    assert (changed.name, changed.description) == (f"{name} two", "first")
    assert changed.metadata["b"] == 2
    client.delete_project(project_name=f"{name} two")
    assert not client.has_project(f"{name} two")
    with pytest.raises(LangSmithNotFoundError):
        client.read_project(project_id=made.id)


def test_a_run_is_shared_read_and_unshared(client, population):
    url = client.share_run(population.first)

    assert client.run_is_shared(population.first)
    assert client.read_run_shared_link(population.first) == url
    token = url.split("/public/")[1].split("/")[0]
    assert client.read_shared_run(token).id == population.first
    assert names(client.list_shared_runs(token)) == ["agent", "look up", "model"]
    client.unshare_run(population.first)
    assert not client.run_is_shared(population.first)


def test_a_browser_gives_feedback_with_a_presigned_address(client, population):
    token = client.create_presigned_feedback_token(population.other, "thumbs")

    client.create_feedback_from_token(token.url, score=1, comment="by a browser")

    (given,) = client.list_feedback(run_ids=[population.other], feedback_key=["thumbs"])
    assert (given.score, given.comment) == (1, "by a browser")


def test_the_asynchronous_client_reads_the_same(live, population):
    async def read():
        async with AsyncClient(api_url=live.api_url, api_key=live.api_key) as client:
            run = await client.read_run(population.first)
            listed = [one.name async for one in client.list_runs(project_id=population.project_id)]
            project = await client.read_project(project_id=population.project_id)
            return run, listed, project

    import asyncio

    run, listed, project = asyncio.run(read())

    assert (run.id, sorted(listed)) == (
        population.first,
        ["agent", "agent", "agent", "look up", "model"],
    )
    assert project.name == population.project
