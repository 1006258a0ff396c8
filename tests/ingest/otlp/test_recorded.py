"""Spans recorded from real libraries; see recorded/README.md."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from apps.ingest.otlp.spans import trace_run_id
from apps.organizations.models import Workspace
from apps.trace_store import Payload, RunDetail, run_store
from tests.factories.spans import TRACE, event, span

RECORDED = Path(__file__).parent / "recorded"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture
def store_recorded(store_spans: Any, workspace: Workspace) -> Any:
    """A function that stores the spans of a library under one root and returns their runs."""

    def store(library: str) -> list[RunDetail]:
        recorded = json.loads((RECORDED / f"{library}.json").read_text())
        spans = [span(1, name="root")]
        for number, body in enumerate(recorded, start=2):
            code = Status(code=f"STATUS_CODE_{body['status']}", message=body["description"] or "")
            events = [
                event(event_fields["name"], event_fields["attributes"])
                for event_fields in body["events"]
            ]
            span_kind = Span.SpanKind.Value(f"SPAN_KIND_{body['kind']}")
            fields = {"status": code, "events": events, "kind": span_kind}
            seconds, attributes = number / 10, body["attributes"]
            spans.append(
                span(number, 1, at=seconds, name=body["name"], attributes=attributes, **fields)
            )
        store_spans(*spans)
        rows = run_store.fetch_trace(workspace.pk, trace_run_id(TRACE))[1:]
        return [run for row in rows if (run := run_store.get(workspace.pk, row.id))]

    return store


def read_payload(run: RunDetail, payload: Payload) -> Any:
    return json.loads(run.json(payload))


def build_tool_call(arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"type": "function", "id": call_id, "function": function}


def test_openinference_spans_are_mapped(store_recorded: Any) -> None:
    chat, embedding = store_recorded("openinference")

    assert (chat.row.name, chat.row.run_type, chat.row.model) == (
        *("ChatCompletion", "llm", "gpt-4o-2024-08-06"),
    )
    inputs = read_payload(chat, Payload.INPUTS)
    assert inputs["messages"][0] == {"role": "system", "content": "Be brief."}
    assert inputs["model"] == "gpt-4o"
    message = read_payload(chat, Payload.OUTPUTS)["choices"][0]["message"]
    assert message["tool_calls"] == [build_tool_call('{"city": "Paris"}')]
    usage = chat.row.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (80, 20, 100)
    assert usage.details is not None
    assert usage.details["prompt_token_details"] == {"cache_read": 64}
    assert usage.details["completion_token_details"] == {"reasoning": 8}
    # 16 tokens at 2.50, 64 cached at 1.25 and 20 at 10 dollars per million.
    assert usage.total_cost == Decimal("0.00032")
    extra = read_payload(chat, Payload.EXTRA)
    assert extra["invocation_params"] == {
        "model": "gpt-4o-2024-08-06",
        "max_tokens": 50,
        "temperature": 0.5,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Weather",
                    "parameters": WEATHER,
                },
            }
        ],
    }
    # A duplicate that is not used for the inputs is kept unchanged, outside of the filtered fields.
    assert extra["otel"]["attributes"]["llm.input_messages.0.message.content"] == "Be brief."
    assert not [key for key in chat.row.metadata if key.startswith("llm.")] or (
        chat.row.metadata["llm.finish_reason"] == "tool_calls"
    )
    assert chat.row.metadata["ls_provider"] == "openai"
    assert (embedding.row.run_type, embedding.row.model) == ("embedding", "text-embedding-3-small")
    assert read_payload(embedding, Payload.INPUTS)["input"] == ["hello"]
    assert embedding.row.usage.prompt_tokens == 3


def test_openllmetry_spans_with_message_parts_are_mapped(store_recorded: Any) -> None:
    chat, embedding, claude = store_recorded("openllmetry")

    assert read_payload(chat, Payload.INPUTS) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
        ]
    }
    assert read_payload(chat, Payload.OUTPUTS) == {
        "messages": [
            {
                "role": "assistant",
                "finish_reason": "tool_call",
                "content": "",
                "tool_calls": [build_tool_call('{"city":"Paris"}')],
            }
        ]
    }
    assert chat.row.usage.details is not None
    assert chat.row.usage.details["prompt_token_details"] == {"cache_read": 64}
    assert read_payload(claude, Payload.INPUTS) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
        ]
    }
    assert claude.row.model == "claude-sonnet-4-5-20250929"
    # 10 tokens at 3, 60 read at 0.30, 30 written at 3.75 and 7 at 15 dollars per million.
    assert claude.row.usage.total_cost == Decimal("0.0002655")
    assert claude.row.outputs_preview == "It rains."
    assert embedding.row.run_type == "embedding"


def test_flattened_openllmetry_spans_are_mapped(store_recorded: Any) -> None:
    chat, embedding = store_recorded("openllmetry_flattened")

    assert (chat.row.run_type, chat.row.metadata["ls_provider"]) == ("llm", "openai")
    assert read_payload(chat, Payload.INPUTS) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Weather in Paris?"}]},
        ]
    }
    assert read_payload(chat, Payload.OUTPUTS) == {
        "messages": [
            {
                "role": "assistant",
                "finish_reason": "tool_calls",
                "tool_calls": [build_tool_call('{"city": "Paris"}')],
            }
        ]
    }
    assert read_payload(chat, Payload.EXTRA)["invocation_params"]["tools"] == [
        {"name": "get_weather", "description": "Weather", "parameters": WEATHER}
    ]
    assert chat.row.usage.total_tokens == 100
    assert read_payload(embedding, Payload.INPUTS) == {"messages": [{"content": "hello"}]}


def test_openlit_spans_are_mapped(store_recorded: Any) -> None:
    chat, _, claude = store_recorded("openlit")

    # It names the called tool, but it is a model run.
    assert (chat.row.run_type, chat.row.name) == ("llm", "chat gpt-4o")
    assert [message["role"] for message in read_payload(claude, Payload.INPUTS)["messages"]] == [
        "system",
        "user",
    ]
    assert chat.row.first_token_time is not None
    time_to_first_token = chat.row.first_token_time - chat.row.start_time
    assert time_to_first_token.total_seconds() == pytest.approx(0.051003)
    # OpenLIT reports a cost of 0 for an unknown price, so the platform's price is used. The ten
    # input tokens do not include the cached ones.
    assert claude.row.usage.total_cost == Decimal("0.0002655")


def test_pydantic_ai_spans_are_mapped(store_recorded: Any) -> None:
    first, tool, second, agent = store_recorded("pydantic_ai")

    assert [run.row.run_type for run in (first, tool, second, agent)] == [
        *("llm", "tool", "llm", "chain"),
    ]
    assert read_payload(first, Payload.INPUTS) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
        ]
    }
    assert read_payload(tool, Payload.INPUTS) == {"city": "a"}
    assert read_payload(tool, Payload.OUTPUTS) == {"output": "rain in a"}
    assert read_payload(tool, Payload.EXTRA)["invocation_params"]["tool_name"] == "get_weather"
    assert read_payload(second, Payload.INPUTS)["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "pyd_ai_tool_call_id__get_weather",
        "name": "get_weather",
        "content": "rain in a",
    }
    assert read_payload(agent, Payload.INPUTS) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
        ]
    }
    assert read_payload(agent, Payload.OUTPUTS) == {"get_weather": "rain in a"}
    assert len({run.row.thread_key for run in (first, tool, second, agent)}) == 1
    assert agent.row.thread_key == agent.row.metadata["thread_id"]
