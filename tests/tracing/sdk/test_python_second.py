"""The generated resources of the public Python client: runs, traces and threads, second version."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from langsmith import Client
from langsmith import _exceptions as refusals

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.xdist_group("sdk-second"),
]


def answered(ask, live):
    """What `ask` returns when it is given a client inside a loop of its own."""

    async def inside():
        client = Client(api_url=live.api_url, api_key=live.api_key)
        try:
            return await ask(client)
        finally:
            # What it has opened belongs to this loop, and it does not close it itself.
            await client.runs._client.close()
            client.cleanup()

    return asyncio.run(inside())


async def collected(pages):
    return [item async for item in pages]


def test_runs_are_queried_page_by_page(live, population):
    async def ask(client):
        return await collected(
            client.runs.query_v2(
                project_ids=[str(population.project_id)],
                selects=["NAME", "RUN_TYPE", "STATUS", "TOTAL_TOKENS", "TOTAL_COST"],
                page_size=2,
            )
        )

    runs = answered(ask, live)

    told = sorted((run.name, run.run_type, run.status) for run in runs)
    assert told == [
        *[("agent", "CHAIN", "SUCCESS")] * 3,
        ("look up", "TOOL", "ERROR"),
        ("model", "LLM", "SUCCESS"),
    ]
    assert {run.total_tokens for run in runs if run.name == "model"} == {11}
    assert {run.total_cost for run in runs if run.name == "model"} == {0.5}


def test_runs_are_filtered(live, population):
    def of(**asked):
        async def ask(client):
            return await collected(
                client.runs.query_v2(
                    project_ids=[str(population.project_id)], selects=["NAME"], **asked
                )
            )

        return sorted(run.name for run in answered(ask, live))

    assert of(has_error=True) == ["look up"]
    assert of(run_type="LLM") == ["model"]
    assert of(is_root=True, tree_filter='eq(run_type, "llm")') == ["agent"]
    assert of(ids=[str(population.other)]) == ["agent"]
    assert of(filter='and(eq(feedback_key, "helpful"), gt(feedback_score, 0.5))') == ["agent"]


def test_a_run_is_retrieved_with_what_is_selected(live, population):
    async def ask(client):
        return await client.runs.retrieve_v2(
            str(population.first),
            project_id=str(population.project_id),
            selects=["NAME", "INPUTS", "FEEDBACK_STATS", "THREAD_ID", "METADATA"],
        )

    run = answered(ask, live)

    assert (run.id, run.name, run.thread_id) == (str(population.first), "agent", "t-1")
    assert run.inputs == {"question": "why?", "works": True}
    assert run.feedback_stats["helpful"].avg == 0.25
    assert run.outputs is None


def test_the_address_of_a_run_is_told(live, population):
    async def ask(client):
        return await client.runs.get_url(
            str(population.first),
            project_id=str(population.project_id),
            trace_id=str(population.first),
        )

    url = answered(ask, live).url

    assert httpx.get(url, follow_redirects=False).status_code in {200, 302}
    assert f"/projects/p/{population.project_id}/r/{population.first}" in url


def test_traces_are_queried_with_their_sums(live, population):
    async def ask(client):
        return await collected(
            client.traces.query(
                project_id=str(population.project_id),
                selects=["NAME", "TOTAL_TOKENS", "TOTAL_COST"],
                page_size=2,
            )
        )

    traces = answered(ask, live)

    assert [trace.root_run.id for trace in traces] == [
        str(population.other),
        str(population.second),
        str(population.first),
    ]
    assert traces[2].trace_aggregates.total_tokens == 11
    assert traces[2].trace_aggregates.total_cost == 0.5


def test_the_runs_of_a_trace_are_listed(live, population):
    async def ask(client):
        return await client.traces.list_runs(
            str(population.first), project_id=str(population.project_id), selects=["NAME"]
        )

    assert [run.name for run in answered(ask, live).items] == ["agent", "look up", "model"]


def test_threads_are_queried_and_told_in_numbers(live, population):
    project_id = str(population.project_id)

    async def ask(client):
        threads = await collected(client.threads.query(project_id=project_id, page_size=1))
        traces = await collected(
            client.threads.list_traces(
                "t-1", project_id=project_id, selects=["TRACE_ID", "TURN_NUMBER"], page_size=1
            )
        )
        stats = await client.threads.stats(
            "t-1", session_id=project_id, selects=["TURNS", "TOTAL_TOKENS", "FEEDBACK_STATS"]
        )
        everything = await client.threads.aggregate_stats(
            project_id=project_id, select=["THREAD_COUNT", "TRACE_COUNT", "TOTAL_TOKENS"]
        )
        return threads, traces, stats, everything

    threads, traces, stats, everything = answered(ask, live)

    assert [(one.thread_id, one.count) for one in threads] == [("t-2", 1), ("t-1", 2)]
    assert [(one.trace_id, one.turn_number) for one in traces] == [
        (str(population.second), 2),
        (str(population.first), 1),
    ]
    assert (stats.turns, stats.total_tokens) == (2, 11)
    assert stats.feedback_stats["helpful"].n == 2
    assert (everything.thread_count, everything.trace_count, everything.total_tokens) == (2, 3, 11)


def test_pages_come_as_streams_of_patches(live, population):
    project_id = str(population.project_id)

    async def ask(client):
        runs = client.runs.streaming.query_v2_items(
            project_ids=[project_id], selects=["NAME"], page_size=2
        )
        traces = client.traces.streaming.query_items(project_id=project_id, page_size=2)
        threads = client.threads.streaming.query_items(project_id=project_id, page_size=1)
        return [await collected(one) for one in (runs, traces, threads)]

    runs, traces, threads = answered(ask, live)

    assert sorted(run.name for run in runs) == ["agent", "agent", "agent", "look up", "model"]
    assert len({trace.root_run.id for trace in traces}) == 3
    assert [thread.thread_id for thread in threads] == ["t-2", "t-1"]


def test_what_is_not_there_and_what_makes_no_sense_are_the_clients_errors(live, population):
    async def missing(client):
        await client.runs.retrieve_v2(
            "01900000-0000-7000-8000-000000000001", project_id=str(population.project_id)
        )

    async def senseless(client):
        await collected(
            client.runs.query_v2(project_ids=[str(population.project_id)], filter="eq(")
        )

    with pytest.raises(refusals.NotFoundError):
        answered(missing, live)
    with pytest.raises(refusals.BadRequestError, match="column"):
        answered(senseless, live)


def test_an_address_is_resolved_to_its_project(live, population):
    async def ask(client):
        await client.sessions.resolve(kind="AGENT", id="nobody", environment="PRODUCTION")

    with pytest.raises(refusals.NotFoundError):
        answered(ask, live)
