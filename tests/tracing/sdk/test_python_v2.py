"""The generated resources of the public Python client: runs, traces and threads of API v2."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from langsmith import Client

try:
    from langsmith import _exceptions as client_errors
except ImportError:  # up to 0.11
    from langsmith._openapi_client import _exceptions as client_errors

from tests.compatibility.chosen_clients import requires_client

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.xdist_group("sdk-second"),
]


def run_with_client(request, live):
    """Call `request` with a client in its own event loop and return its result."""

    async def inside():
        client = Client(api_url=live.api_url, api_key=live.api_key)
        try:
            return await request(client)
        finally:
            # The connections belong to this loop, and `cleanup` does not close them.
            await client.runs._client.close()
            client.cleanup()

    return asyncio.run(inside())


async def collect_items(pages):
    return [item async for item in pages]


def test_runs_are_queried_page_by_page(live, population):
    async def request(client):
        return await collect_items(
            client.runs.query_v2(
                project_ids=[str(population.project_id)],
                selects=["NAME", "RUN_TYPE", "STATUS", "TOTAL_TOKENS", "TOTAL_COST"],
                page_size=2,
            )
        )

    runs = run_with_client(request, live)

    rows = sorted((run.name, run.run_type, run.status) for run in runs)
    assert rows == [
        *[("agent", "CHAIN", "SUCCESS")] * 3,
        ("look up", "TOOL", "ERROR"),
        ("model", "LLM", "SUCCESS"),
    ]
    assert {run.total_tokens for run in runs if run.name == "model"} == {11}
    assert {run.total_cost for run in runs if run.name == "model"} == {0.5}


def test_runs_are_filtered(live, population):
    def query_names(**params):
        async def request(client):
            return await collect_items(
                client.runs.query_v2(
                    project_ids=[str(population.project_id)], selects=["NAME"], **params
                )
            )

        return sorted(run.name for run in run_with_client(request, live))

    assert query_names(has_error=True) == ["look up"]
    assert query_names(run_type="LLM") == ["model"]
    assert query_names(is_root=True, tree_filter='eq(run_type, "llm")') == ["agent"]
    assert query_names(ids=[str(population.other)]) == ["agent"]
    assert query_names(filter='and(eq(feedback_key, "helpful"), gt(feedback_score, 0.5))') == [
        "agent"
    ]


def test_a_run_is_retrieved_with_the_selected_fields(live, population):
    async def request(client):
        return await client.runs.retrieve_v2(
            str(population.first),
            project_id=str(population.project_id),
            selects=["NAME", "INPUTS", "FEEDBACK_STATS", "THREAD_ID", "METADATA"],
        )

    run = run_with_client(request, live)

    assert (run.id, run.name, run.thread_id) == (str(population.first), "agent", "t-1")
    assert run.inputs == {"question": "why?", "has_children": True}
    assert run.feedback_stats["helpful"].avg == 0.25
    assert run.outputs is None


def test_the_url_of_a_run_opens_its_page(live, population):
    async def request(client):
        return await client.runs.get_url(
            str(population.first),
            project_id=str(population.project_id),
            trace_id=str(population.first),
        )

    url = run_with_client(request, live).url

    assert httpx.get(url, follow_redirects=False).status_code in {200, 302}
    assert f"/projects/p/{population.project_id}/r/{population.first}" in url


def test_traces_are_queried_with_their_totals(live, population):
    async def request(client):
        return await collect_items(
            client.traces.query(
                project_id=str(population.project_id),
                selects=["NAME", "TOTAL_TOKENS", "TOTAL_COST"],
                page_size=2,
            )
        )

    traces = run_with_client(request, live)

    assert [trace.root_run.id for trace in traces] == [
        str(population.other),
        str(population.second),
        str(population.first),
    ]
    assert traces[2].trace_aggregates.total_tokens == 11
    assert traces[2].trace_aggregates.total_cost == 0.5


def test_the_runs_of_a_trace_are_listed(live, population):
    async def request(client):
        return await client.traces.list_runs(
            str(population.first), project_id=str(population.project_id), selects=["NAME"]
        )

    assert [run.name for run in run_with_client(request, live).items] == [
        "agent",
        "look up",
        "model",
    ]


@requires_client("langsmith", ">0.11.2", "statistics of threads")
def test_threads_are_queried_with_their_statistics(live, population):
    project_id = str(population.project_id)

    async def request(client):
        threads = await collect_items(client.threads.query(project_id=project_id, page_size=1))
        traces = await collect_items(
            client.threads.list_traces(
                "t-1", project_id=project_id, selects=["TRACE_ID", "TURN_NUMBER"], page_size=1
            )
        )
        stats = await client.threads.stats(
            "t-1", session_id=project_id, selects=["TURNS", "TOTAL_TOKENS", "FEEDBACK_STATS"]
        )
        project_stats = await client.threads.aggregate_stats(
            project_id=project_id, select=["THREAD_COUNT", "TRACE_COUNT", "TOTAL_TOKENS"]
        )
        return threads, traces, stats, project_stats

    threads, traces, stats, project_stats = run_with_client(request, live)

    assert [(row.thread_id, row.count) for row in threads] == [("t-2", 1), ("t-1", 2)]
    assert [(row.trace_id, row.turn_number) for row in traces] == [
        (str(population.second), 2),
        (str(population.first), 1),
    ]
    assert (stats.turns, stats.total_tokens) == (2, 11)
    assert stats.feedback_stats["helpful"].n == 2
    assert (project_stats.thread_count, project_stats.trace_count, project_stats.total_tokens) == (
        2,
        3,
        11,
    )


@requires_client("langsmith", ">0.11.2", "streams of patches")
def test_items_of_a_stream_of_patches_are_collected(live, population):
    project_id = str(population.project_id)

    async def request(client):
        runs = client.runs.streaming.query_v2_items(
            project_ids=[project_id], selects=["NAME"], page_size=2
        )
        traces = client.traces.streaming.query_items(project_id=project_id, page_size=2)
        threads = client.threads.streaming.query_items(project_id=project_id, page_size=1)
        return [await collect_items(items) for items in (runs, traces, threads)]

    runs, traces, threads = run_with_client(request, live)

    assert sorted(run.name for run in runs) == ["agent", "agent", "agent", "look up", "model"]
    assert len({trace.root_run.id for trace in traces}) == 3
    assert [thread.thread_id for thread in threads] == ["t-2", "t-1"]


def test_missing_and_malformed_requests_raise_the_errors_of_the_client(live, population):
    async def missing(client):
        await client.runs.retrieve_v2(
            "01900000-0000-7000-8000-000000000001", project_id=str(population.project_id)
        )

    async def malformed(client):
        await collect_items(
            client.runs.query_v2(project_ids=[str(population.project_id)], filter="eq(")
        )

    with pytest.raises(client_errors.NotFoundError):
        run_with_client(missing, live)
    with pytest.raises(client_errors.BadRequestError, match="column"):
        run_with_client(malformed, live)


@requires_client("langsmith", ">0.11.2", "registry of agents")
def test_resolving_an_unknown_agent_raises_not_found(live, population):
    async def request(client):
        await client.sessions.resolve(kind="AGENT", id="unknown", environment="PRODUCTION")

    with pytest.raises(client_errors.NotFoundError):
        run_with_client(request, live)
