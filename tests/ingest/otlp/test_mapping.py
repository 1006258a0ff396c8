"""What each attribute becomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from apps.ingest.operations import RunOperation
from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp.run_mapping import map_span
from apps.ingest.otlp.spans import span_run_id
from apps.ingest.run_content import parse_operation
from apps.trace_store import Payload
from tests.factories.spans import BEGIN, SECOND, TRACE, event, export, span


class Run:
    """What the store would be given."""

    def __init__(self, one: Span, **about: Any) -> None:
        (decoded,) = protobuf_decoder.decode(export(one, **about).SerializeToString()).spans
        run = map_span(decoded)
        run.id = span_run_id(TRACE, b"12345678")
        self.operation = RunOperation(False, run)
        parse_operation(self.operation)
        self.columns = self.operation.content.columns
        self.metadata = json.loads(self.operation.content.metadata or b"{}")

    def _told(self, payload: Payload) -> Any:
        text = self.operation.content.payloads.get(payload)
        return None if text is None else json.loads(text)

    @property
    def inputs(self) -> Any:
        return self._told(Payload.INPUTS)

    @property
    def outputs(self) -> Any:
        return self._told(Payload.OUTPUTS)

    @property
    def extra(self) -> Any:
        return self._told(Payload.EXTRA)

    @property
    def events(self) -> Any:
        return self._told(Payload.EVENTS)

    @property
    def error(self) -> Any:
        return self._told(Payload.ERROR)


def said(**fields: Any) -> Run:
    return Run(span(says=fields.pop("says", None), **fields))


def says(attributes: dict[str, Any]) -> Run:
    return said(says=attributes)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({}, "chain"),
        ({"langsmith.span.kind": "parser", "openinference.span.kind": "LLM"}, "parser"),
        ({"langsmith.span.kind": "no kind of ours"}, "chain"),
        ({"gen_ai.operation.name": "chat"}, "llm"),
        ({"gen_ai.operation.name": "text_completion"}, "llm"),
        ({"gen_ai.operation.name": "generate_content"}, "llm"),
        ({"gen_ai.operation.name": "embeddings"}, "embedding"),
        ({"gen_ai.operation.name": "execute_tool"}, "tool"),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"}, "chain"),
        ({"traceloop.span.kind": "workflow"}, "chain"),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"llm.request.type": "embedding"}, "embedding"),
        ({"llm.request.type": "rerank"}, "llm"),
        ({"traceloop.llm.request.type": "chat"}, "llm"),
        ({"openinference.span.kind": "LLM"}, "llm"),
        ({"openinference.span.kind": "AGENT"}, "chain"),
        ({"openinference.span.kind": "GUARDRAIL"}, "chain"),
        ({"openinference.span.kind": "EVALUATOR"}, "chain"),
        ({"openinference.span.kind": "RERANKER"}, "retriever"),
        ({"openinference.span.kind": "EMBEDDING"}, "embedding"),
        ({"openinference.span.kind": "PROMPT"}, "prompt"),
        ({"openinference.span.kind": "UNKNOWN"}, "chain"),
        ({"gen_ai.tool.name": "search"}, "tool"),
        ({"llm.prompt_template.variables": "{}", "input.value": "x"}, "prompt"),
        ({"ai.operationId": "ai.streamText.doStream"}, "llm"),
        ({"ai.operationId": "ai.generateText"}, "chain"),
    ],
)
def test_kinds(attributes: dict[str, Any], kind: str) -> None:
    assert says(attributes).columns["run_type"] == kind


def test_names() -> None:
    assert says({}).columns["name"] == "step"
    assert says({"traceloop.entity.name": "plan"}).columns["name"] == "plan"
    assert says({"langsmith.trace.name": "mine", "traceloop.entity.name": "p"}).columns["name"] == (
        "mine"
    )
    tool = {"openinference.span.kind": "TOOL", "tool.name": "search"}
    assert says(tool).columns["name"] == "search"
    assert says({"tool.name": "x", "openinference.span.kind": "LLM"}).columns["name"] == "step"
    assert said(name="").columns["name"] == "span"


@pytest.mark.parametrize(
    ("attributes", "inputs"),
    [
        ({"gen_ai.prompt": '{"messages": [], "model": "m"}'}, {"messages": [], "model": "m"}),
        ({"gen_ai.prompt": "plain"}, {"input": "plain"}),
        ({"input.value": '["a"]'}, {"input": ["a"]}),
        ({"input.value": "{not json}"}, {"input": "{not json}"}),
        ({"input.value": '{"n": 123456789012345678901234567890}'}, None),
        ({"input.value": "7"}, {"input": "7"}),
        ({"traceloop.entity.input": '{"args": [1]}'}, {"args": [1]}),
        ({"prompt": "why?"}, {"input": "why?"}),
        ({"tool_arguments": '{"city": "Paris"}'}, {"city": "Paris"}),
        ({"gen_ai.tool.call.arguments": '{"a": 1}'}, {"a": 1}),
        (
            {"gen_ai.prompt.0.message.role": "user", "gen_ai.prompt.0.message.content": "hi"},
            {"messages": [{"role": "user", "content": "hi"}]},
        ),
        (
            {
                "llm.input_messages.1.message.role": "tool",
                "llm.input_messages.1.message.tool_call_id": "c",
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.contents.0.message_content.type": "image",
                "llm.input_messages.0.message.contents.0.message_content.image.image.url": "u",
            },
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "u"}}],
                    },
                    {"role": "tool", "tool_call_id": "c"},
                ]
            },
        ),
        (
            {"gen_ai.system_instructions": "Be brief."},
            {"messages": [{"role": "system", "content": "Be brief."}]},
        ),
        (
            {
                "events": json.dumps(
                    [
                        {"event.name": "gen_ai.user.message", "content": "hi", "role": "user"},
                        {"event.name": "gen_ai.choice", "message": {"content": "yo"}},
                    ]
                )
            },
            {"messages": [{"role": "user", "content": "hi"}]},
        ),
    ],
)
def test_inputs(attributes: dict[str, Any], inputs: Any) -> None:
    mapped = says(attributes).inputs

    if inputs is None:
        assert mapped == {"n": 123456789012345678901234567890}
    else:
        assert _without(mapped, "event.name") == inputs


def _without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, name) for key, one in value.items() if key != name}
    return [_without(one, name) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("attributes", "outputs"),
    [
        ({"gen_ai.completion": '{"answer": 1}'}, {"answer": 1}),
        ({"output.value": "done", "output.mime_type": "text/plain"}, {"output": "done"}),
        ({"gen_ai.tool.call.result": '{"ok": true}'}, {"ok": True}),
        (
            {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "hi"},
            {"messages": [{"role": "assistant", "content": "hi"}]},
        ),
        (
            {
                "retrieval.documents.0.document.content": "text",
                "retrieval.documents.0.document.id": "d1",
                "retrieval.documents.0.document.score": 0.5,
                "retrieval.documents.0.document.metadata": '{"page": 3}',
            },
            {
                "documents": [
                    {"page_content": "text", "metadata": {"page": 3, "id": "d1", "score": 0.5}}
                ]
            },
        ),
        ({"events": '[{"event.name": "gen_ai.choice", "message": {"content": "yo"}}]'}, None),
    ],
)
def test_outputs(attributes: dict[str, Any], outputs: Any) -> None:
    mapped = says(attributes).outputs

    if outputs is None:
        assert mapped["messages"][0]["content"] == "yo"
    else:
        assert mapped == outputs


def test_the_first_source_wins_and_the_others_stay() -> None:
    run = says({"input.value": "second", "gen_ai.prompt": "first"})

    assert run.inputs == {"input": "first"}
    assert run.extra["otel"]["attributes"] == {"input.value": "second"}


def test_parameters() -> None:
    run = says(
        {
            "gen_ai.request.model": "asked",
            "gen_ai.response.model": "answered",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_k": 3,
            "gen_ai.request.stop_sequences": ["END"],
            "llm.invocation_parameters": '{"seed": 4, "temperature": 1}',
            "gen_ai.tool.definitions": '[{"name": "t"}]',
        }
    )

    assert run.extra["invocation_params"] == {
        "seed": 4,
        "temperature": 0.5,
        "model": "answered",
        "top_k": 3,
        "stop": ["END"],
        "tools": [{"name": "t"}],
    }
    assert run.columns["model"] == "answered"
    assert run.metadata["gen_ai.request.model"] == "asked"


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gen_ai.system", "openai"),
        ("gen_ai.provider.name", "openai"),
        ("llm.system", "openai"),
        ("gen_ai.system", "OpenAI"),
    ],
)
def test_providers(name: str, provider: str) -> None:
    assert says({name: provider}).metadata["ls_provider"] == "openai"


def test_a_convention_names_a_provider_otherwise() -> None:
    assert says({"gen_ai.provider.name": "aws.bedrock"}).metadata["ls_provider"] == (
        "amazon_bedrock"
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3},
        {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3},
        {"llm.token_count.prompt": 7, "llm.token_count.completion": 3, "llm.token_count.total": 10},
        {"langsmith.usage_metadata": '{"input_tokens": 7, "output_tokens": 3}'},
        {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3, "input_tokens": 9},
    ],
)
def test_usage(attributes: dict[str, Any]) -> None:
    columns = says(attributes).columns

    assert (
        columns["prompt_tokens"],
        columns["completion_tokens"],
        columns["total_tokens"],
    ) == (7, 3, 10)


@pytest.mark.parametrize("text", ['{"cache_read": 5}', "{'cache_read': 5}"])
def test_details_of_usage_as_json_and_as_python_writes_them(text: str) -> None:
    run = says({"gen_ai.usage.input_tokens": 7, "gen_ai.usage.input_token_details": text})

    assert json.loads(run.columns["usage_details"]) == {"prompt_token_details": {"cache_read": 5}}


def test_details_of_usage_by_their_own_names() -> None:
    run = says(
        {
            "gen_ai.usage.input_tokens": 70,
            "gen_ai.usage.cache_read_input_tokens": 5,
            "gen_ai.usage.cache_creation_input_tokens": 6,
            "gen_ai.usage.details.reasoning_tokens": 2,
            "llm.cost.total": 0.25,
        }
    )

    assert json.loads(run.columns["usage_details"]) == {
        "prompt_token_details": {"cache_read": 5, "cache_creation": 6},
        "completion_token_details": {"reasoning": 2},
    }
    assert run.columns["total_cost"] == Decimal("0.25")


def test_metadata_tags_and_thread() -> None:
    run = says(
        {
            "langsmith.metadata.user": "u1",
            "langsmith.metadata.plan": '{"a": 1}',
            "traceloop.association.properties.order": 7,
            "metadata": '{"from": "json"}',
            "langsmith.span.tags": "a, b",
            "session.id": "thread 1",
            "custom.flag": True,
            "custom.long": "x" * 1001,
            "custom.list": [1, 2],
        }
    )

    assert run.metadata == {
        "from": "json",
        "user": "u1",
        "plan": {"a": 1},
        "order": 7,
        "thread_id": "thread 1",
        "custom.flag": True,
        "service.name": "shop",
    }
    assert run.columns["tags"] == ["a", "b"]
    assert run.columns["thread_key"] == "thread 1"
    assert run.extra["otel"]["attributes"] == {"custom.long": "x" * 1001, "custom.list": [1, 2]}


@pytest.mark.parametrize(
    "attributes",
    [
        {"thread.id": "t"},
        {"gen_ai.conversation.id": "t"},
        {"langsmith.metadata.session_id": "t", "session.id": "other"},
        {"langsmith.metadata.conversation_id": "t"},
        {"langsmith.metadata.thread_id": "t"},
        {"session.id": "t", "gen_ai.conversation.id": "t"},
    ],
)
def test_threads(attributes: dict[str, Any]) -> None:
    assert says(attributes).columns["thread_key"] == "t"


def test_a_list_of_tags_and_a_reference_example() -> None:
    example = "11111111-1111-4111-8111-111111111111"
    run = says({"langsmith.span.tags": ["x", "y"], "langsmith.reference_example_id": example})

    assert run.columns["tags"] == ["x", "y"]
    assert run.columns["reference_example_id"] == UUID(example)


def test_what_opentelemetry_knows_besides_is_kept() -> None:
    link = Span.Link(trace_id=TRACE, span_id=b"abcdefgh", attributes=[])
    run = Run(
        span(
            7,
            3,
            kind=Span.SPAN_KIND_CLIENT,
            links=[link],
            trace_state="a=b",
            dropped_attributes_count=2,
        ),
        resource={"host.name": "h"},
        scope="lib",
    )

    assert run.extra["otel"] == {
        "trace_id": TRACE.hex(),
        "span_id": "0000000000000007",
        "parent_span_id": "0000000000000003",
        "kind": "client",
        "trace_state": "a=b",
        "links": [{"trace_id": TRACE.hex(), "span_id": "6162636465666768", "attributes": {}}],
        "dropped_attributes_count": 2,
        "resource": {"service.name": "shop", "host.name": "h"},
        "scope": {"name": "lib", "version": "1"},
    }


def test_messages_in_span_events() -> None:
    run = said(
        events=[
            event("gen_ai.system.message", {"content": "Be brief."}),
            event("gen_ai.user.message", {"gen_ai.event.content": '{"content": "why?"}'}),
            event("gen_ai.tool.message", {"id": "c1", "content": "42"}),
            event(
                "gen_ai.choice",
                {
                    "finish_reason": "stop",
                    "message.role": "assistant",
                    "message.content": "because",
                    "tool_calls.0.id": "c2",
                    "tool_calls.0.type": "function",
                    "tool_calls.0.function.name": "f",
                    "tool_calls.0.function.arguments": "{}",
                },
            ),
            event("other", {"a": 1}),
        ]
    )

    assert run.inputs == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "why?"},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]
    }
    assert run.outputs == {
        "messages": [
            {
                "role": "assistant",
                "finish_reason": "stop",
                "content": "because",
                "tool_calls": [
                    {
                        "type": "function",
                        "id": "c2",
                        "function": {"name": "f", "arguments": "{}"},
                    }
                ],
            }
        ]
    }
    assert [one["name"] for one in run.events] == ["other"]


def test_content_in_span_events() -> None:
    run = said(
        events=[
            event("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user"}]'}),
            event("gen_ai.content.completion", {"gen_ai.completion": "hi"}),
        ]
    )

    assert run.inputs == {"input": [{"role": "user"}]}
    assert run.outputs == {"output": "hi"}


def test_an_exception_is_the_error() -> None:
    exception = {
        "exception.type": "ValueError",
        "exception.message": "no city",
        "exception.stacktrace": "Traceback: here",
    }
    run = said(events=[event("exception", exception)])

    assert run.error == "no city\n\nTraceback: here"
    assert run.events[0]["kwargs"] == exception


def test_an_exception_in_a_span_that_went_well_is_only_an_event() -> None:
    run = said(
        events=[event("exception", {"exception.message": "retried"})],
        status=Status(code=Status.STATUS_CODE_OK),
    )

    assert run.error is None
    assert run.events[0]["name"] == "exception"


@pytest.mark.parametrize(("message", "error"), [("broken", "broken"), ("", "error")])
def test_a_status_of_error_is_one_without_an_exception(message: str, error: str) -> None:
    assert said(error=message).error == error


def test_the_first_token() -> None:
    by_event = said(events=[event("new_token", at=0.25)])
    by_attribute = says({"gen_ai.response.time_to_first_chunk": 0.25})

    expected = datetime.fromtimestamp(BEGIN / SECOND + 0.25, UTC)
    assert by_event.columns["first_token_time"] == expected
    assert by_attribute.columns["first_token_time"] == expected
