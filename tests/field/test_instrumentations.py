"""Traces of one agent by the real packages of instrumentations and clients.

Each library ran the same agent against a server that answers like OpenAI or Gemini: a question
with an image, a tool call, and an answer. Both model calls report 80 input tokens, of which 64 are
cached, and 20 output tokens, of which 8 are reasoning.

See recorded/README.md and the table in
docs/compatibility.md, whose sources are langfuse#12306, phoenix#10783 and langsmith-sdk#2250.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from apps.trace_store import Payload, RunQuery, Status, run_store
from tests.tracing.stats.populations import process_pending_runs, project_id_of

pytestmark = pytest.mark.django_db

RECORDED = Path(__file__).parent / "recorded"
WITHOUT_CALLS = {"crewai_openllmetry", "claude_agent_sdk"}
"""The library sent no spans of its model calls."""
LIBRARIES = sorted({path.stem for path in RECORDED.glob("*.json")} - WITHOUT_CALLS)
WITHOUT_INPUTS = {"openllmetry_openai"}
"""The library sent no input messages: it drops them if they have an image and no place for it."""
WITHOUT_IMAGE = {"google_adk", "crewai_openinference"}
"""The library sent "<not serializable>" in place of the image, or the agent takes none."""
WITHOUT_TOOL_RUN = {"openinference_openai", "openllmetry_openai"}
"""Instrumentations of a model client, which does not run the tools."""
WITHOUT_DETAILS = {"ai_sdk_5"}
"""The spans of the library have no cached and reasoning tokens."""
CALL_COSTS = {"google_adk": Decimal("0.00005672"), "ai_sdk_5": Decimal("0.0004")}
"""16 plain, 64 cached and 20 output tokens of Gemini 2.5 Flash; 80 plain ones of GPT-4o."""
GPT_4O_COST = Decimal("0.00032")


@pytest.fixture(params=LIBRARIES)
def library(request):
    return request.param


@pytest.fixture
def runs(exporter, workspace, library):
    """The stored runs of the library's trace, in the order of the tree."""
    send(exporter, read_recorded(library), library)
    return read_runs(workspace, library)


def read_recorded(library):
    return Parse((RECORDED / f"{library}.json").read_text(), ExportTraceServiceRequest())


def send(exporter, request, library):
    response = exporter.send(request.SerializeToString(), langsmith_project=library)
    assert (response.status_code, response.content) == (200, b"")


def read_runs(workspace, library):
    process_pending_runs()
    query = RunQuery(project_ids=[project_id_of(workspace, library)])
    rows = [run.row for run in run_store.query(workspace.pk, query, limit=100).runs]
    rows.sort(key=lambda row: row.dotted_order)
    return [run_store.get(workspace.pk, row.id) for row in rows]


def test_trace_of_each_library_is_read_right(library, runs):
    rows = [run.row for run in runs]
    [root] = [row for row in rows if row.is_root]
    calls = [run for run in runs if run.row.run_type == "llm"]
    tools = [row for row in rows if row.run_type == "tool"]

    # The tree: one root, two model calls, and the tool between them if it is traced.
    assert {row.trace_id for row in rows} == {root.id}
    assert {row.status for row in rows} == {Status.SUCCESS}
    assert len(calls) == 2, [row.name for row in rows]
    assert len(tools) == (0 if library in WITHOUT_TOOL_RUN else 1)
    # Tokens and cost, of each call once.
    cost = CALL_COSTS.get(library, GPT_4O_COST)
    for call in calls:
        usage = call.row.usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (80, 20, 100)
        assert usage.total_cost == cost
        details = usage.details or {}
        if library in WITHOUT_DETAILS:
            assert details == {}
            continue
        assert details["prompt_token_details"] == {"cache_read": 64}
        assert details["completion_token_details"] == {"reasoning": 8}
    assert (root.usage.total_tokens, root.usage.total_cost) == (200, 2 * cost)


def test_messages_and_image_of_each_library_are_stored(library, runs):
    calls = [run for run in runs if run.row.run_type == "llm"]

    outputs = [json.dumps(json.loads(call.json(Payload.OUTPUTS))) for call in calls]
    assert "get_weather" in outputs[0]
    assert "Sunny." in outputs[1]
    if library in WITHOUT_INPUTS:
        return
    for call in calls:
        inputs = json.dumps(json.loads(call.json(Payload.INPUTS)))
        assert "What is the weather here?" in inputs
        assert ("iVBORw0KGgo" in inputs) == (library not in WITHOUT_IMAGE)


def test_tasks_of_crewai_without_spans_of_calls_are_a_tree(exporter, workspace):
    send(exporter, read_recorded("crewai_openllmetry"), "crewai")

    rows = [run.row for run in read_runs(workspace, "crewai")]

    assert [row.name for row in rows] == [
        "crewai.workflow", "What is the weather here?.task", "Forecaster.agent"
    ]  # fmt: skip
    assert {row.trace_id for row in rows} == {rows[0].id}
    assert "llm" not in {row.run_type for row in rows}
    # The counts of the crew are a text, in an attribute of its own.
    assert {row.total_tokens for row in rows} == {None}


def test_tokens_of_a_claude_agent_are_those_of_its_session(exporter, workspace):
    send(exporter, read_recorded("claude_agent_sdk"), "claude")

    runs = read_runs(workspace, "claude")
    [agent] = [run for run in runs if run.row.name.endswith("receive_response")]
    [tool] = [run.row for run in runs if run.row.parent_run_id == agent.row.id]
    assert (tool.name, tool.run_type) == ("mcp__weather__get_weather", "tool")
    assert agent.value(Payload.OUTPUTS) is not None
    # The library sends the sums of its session, with the output tokens of each message's start.
    usage = agent.row.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (160, 2, 162)
    assert (usage.details or {})["prompt_token_details"] == {"cache_read": 128}
    assert usage.total_cost == Decimal("0.0001644")
    assert (agent.row.run_type, agent.row.model) == ("chain", "claude-sonnet-4-5")


@pytest.mark.parametrize("library", ["litellm_request_span", "litellm_within_span"])
def test_calls_of_litellm_are_counted_once_if_each_span_arrives_alone(exporter, workspace, library):
    recorded = read_recorded(library)
    for resource_spans in recorded.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                request = ExportTraceServiceRequest()
                scope = request.resource_spans.add().scope_spans.add()
                scope.scope.CopyFrom(scope_spans.scope)
                scope.spans.append(span)
                send(exporter, request, library)
    rows = [run.row for run in read_runs(workspace, library)]

    [root] = [row for row in rows if row.is_root]
    calls = [row for row in rows if row.run_type == "llm"]
    assert [row.usage.total_tokens for row in calls] == [100, 100]
    assert (root.usage.total_tokens, root.usage.total_cost) == (200, 2 * GPT_4O_COST)
    names = {"litellm_request_span": "litellm_request", "litellm_within_span": "raw_gen_ai_request"}
    assert {row.name for row in calls} == {names[library]}
    repeated = [row for row in rows if row.name == "raw_gen_ai_request" and row not in calls]
    assert len(repeated) == (2 if library == "litellm_request_span" else 0)
    assert {(row.run_type, row.usage.total_tokens) for row in repeated} <= {("chain", None)}
