"""The mapping of span attributes to fields of runs."""

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


class MappedRun:
    """A span mapped to the columns and payloads of a run."""

    def __init__(self, span_message: Span, **fields: Any) -> None:
        (decoded,) = protobuf_decoder.decode(
            export(span_message, **fields).SerializeToString()
        ).spans
        run = map_span(decoded)
        run.id = span_run_id(TRACE, b"12345678")
        self.operation = RunOperation(False, run)
        parse_operation(self.operation)
        self.columns = self.operation.content.columns
        self.metadata = json.loads(self.operation.content.metadata or b"{}")

    def _read_payload(self, payload: Payload) -> Any:
        text = self.operation.content.payloads.get(payload)
        return None if text is None else json.loads(text)

    @property
    def inputs(self) -> Any:
        return self._read_payload(Payload.INPUTS)

    @property
    def outputs(self) -> Any:
        return self._read_payload(Payload.OUTPUTS)

    @property
    def extra(self) -> Any:
        return self._read_payload(Payload.EXTRA)

    @property
    def events(self) -> Any:
        return self._read_payload(Payload.EVENTS)

    @property
    def error(self) -> Any:
        return self._read_payload(Payload.ERROR)


def map_with(**fields: Any) -> MappedRun:
    return MappedRun(span(attributes=fields.pop("attributes", None), **fields))


def map_attributes(attributes: dict[str, Any]) -> MappedRun:
    return map_with(attributes=attributes)


@pytest.mark.parametrize(
    ("attributes", "run_type"),
    [
        ({}, "chain"),
        ({"langsmith.span.kind": "parser", "openinference.span.kind": "LLM"}, "parser"),
        ({"langsmith.span.kind": "unknown kind"}, "chain"),
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
def test_a_span_kind_is_mapped_to_a_run_type(attributes: dict[str, Any], run_type: str) -> None:
    assert map_attributes(attributes).columns["run_type"] == run_type


def test_the_name_of_a_run_is_selected_by_precedence() -> None:
    assert map_attributes({}).columns["name"] == "step"
    assert map_attributes({"traceloop.entity.name": "plan"}).columns["name"] == "plan"
    assert map_attributes({"langsmith.trace.name": "mine", "traceloop.entity.name": "p"}).columns[
        "name"
    ] == ("mine")
    tool = {"openinference.span.kind": "TOOL", "tool.name": "search"}
    assert map_attributes(tool).columns["name"] == "search"
    assert (
        map_attributes({"tool.name": "x", "openinference.span.kind": "LLM"}).columns["name"]
        == "step"
    )
    assert map_with(name="").columns["name"] == "span"


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
def test_attributes_are_mapped_to_inputs(attributes: dict[str, Any], inputs: Any) -> None:
    mapped = map_attributes(attributes).inputs

    if inputs is None:
        assert mapped == {"n": 123456789012345678901234567890}
    else:
        assert _drop_key(mapped, "event.name") == inputs


def _drop_key(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _drop_key(item, name) for key, item in value.items() if key != name}
    return [_drop_key(item, name) for item in value] if isinstance(value, list) else value


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
def test_attributes_are_mapped_to_outputs(attributes: dict[str, Any], outputs: Any) -> None:
    mapped = map_attributes(attributes).outputs

    if outputs is None:
        assert mapped["messages"][0]["content"] == "yo"
    else:
        assert mapped == outputs


def test_the_first_source_is_the_input_and_the_others_are_kept_as_attributes() -> None:
    run = map_attributes({"input.value": "second", "gen_ai.prompt": "first"})

    assert run.inputs == {"input": "first"}
    assert run.extra["otel"]["attributes"] == {"input.value": "second"}


def test_request_attributes_are_mapped_to_invocation_params() -> None:
    run = map_attributes(
        {
            "gen_ai.request.model": "requested",
            "gen_ai.response.model": "responded",
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
        "model": "responded",
        "top_k": 3,
        "stop": ["END"],
        "tools": [{"name": "t"}],
    }
    assert run.columns["model"] == "responded"
    assert run.metadata["gen_ai.request.model"] == "requested"


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gen_ai.system", "openai"),
        ("gen_ai.provider.name", "openai"),
        ("llm.system", "openai"),
        ("gen_ai.system", "OpenAI"),
    ],
)
def test_attributes_are_mapped_to_the_provider(name: str, provider: str) -> None:
    assert map_attributes({name: provider}).metadata["ls_provider"] == "openai"


def test_a_provider_name_of_a_convention_is_translated() -> None:
    assert map_attributes({"gen_ai.provider.name": "aws.bedrock"}).metadata["ls_provider"] == (
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
def test_attributes_are_mapped_to_token_usage(attributes: dict[str, Any]) -> None:
    columns = map_attributes(attributes).columns

    assert (
        columns["prompt_tokens"],
        columns["completion_tokens"],
        columns["total_tokens"],
    ) == (7, 3, 10)


@pytest.mark.parametrize("text", ['{"cache_read": 5}', "{'cache_read': 5}"])
def test_usage_details_are_read_from_json_and_python_literals(text: str) -> None:
    run = map_attributes({"gen_ai.usage.input_tokens": 7, "gen_ai.usage.input_token_details": text})

    assert json.loads(run.columns["usage_details"]) == {"prompt_token_details": {"cache_read": 5}}


def test_usage_details_are_read_from_their_own_attributes() -> None:
    run = map_attributes(
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


def test_attributes_are_mapped_to_metadata_tags_and_thread() -> None:
    run = map_attributes(
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
def test_attributes_are_mapped_to_the_thread(attributes: dict[str, Any]) -> None:
    assert map_attributes(attributes).columns["thread_key"] == "t"


def test_a_list_of_tags_and_a_reference_example_are_mapped() -> None:
    example = "11111111-1111-4111-8111-111111111111"
    run = map_attributes(
        {"langsmith.span.tags": ["x", "y"], "langsmith.reference_example_id": example}
    )

    assert run.columns["tags"] == ["x", "y"]
    assert run.columns["reference_example_id"] == UUID(example)


def test_other_fields_of_opentelemetry_are_kept() -> None:
    link = Span.Link(trace_id=TRACE, span_id=b"abcdefgh", attributes=[])
    run = MappedRun(
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


def test_span_events_are_mapped_to_messages() -> None:
    run = map_with(
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
    assert [event["name"] for event in run.events] == ["other"]


def test_span_events_are_mapped_to_content() -> None:
    run = map_with(
        events=[
            event("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user"}]'}),
            event("gen_ai.content.completion", {"gen_ai.completion": "hi"}),
        ]
    )

    assert run.inputs == {"input": [{"role": "user"}]}
    assert run.outputs == {"output": "hi"}


def test_an_exception_event_is_the_error() -> None:
    exception = {
        "exception.type": "ValueError",
        "exception.message": "no city",
        "exception.stacktrace": "Traceback: here",
    }
    run = map_with(events=[event("exception", exception)])

    assert run.error == "no city\n\nTraceback: here"
    assert run.events[0]["kwargs"] == exception


def test_an_exception_in_a_successful_span_is_an_event() -> None:
    run = map_with(
        events=[event("exception", {"exception.message": "retried"})],
        status=Status(code=Status.STATUS_CODE_OK),
    )

    assert run.error is None
    assert run.events[0]["name"] == "exception"


@pytest.mark.parametrize(("message", "error"), [("broken", "broken"), ("", "error")])
def test_an_error_status_is_an_error_without_an_exception(message: str, error: str) -> None:
    assert map_with(error=message).error == error


def test_the_first_token_time_is_read_from_event_or_attribute() -> None:
    by_event = map_with(events=[event("new_token", at=0.25)])
    by_attribute = map_attributes({"gen_ai.response.time_to_first_chunk": 0.25})

    expected = datetime.fromtimestamp(BEGIN / SECOND + 0.25, UTC)
    assert by_event.columns["first_token_time"] == expected
    assert by_attribute.columns["first_token_time"] == expected


def test_an_embedding_of_the_ai_sdk_has_values_vectors_and_tokens() -> None:
    model = {"ai.model.id": "text-embedding-3-small", "ai.model.provider": "openai.embedding"}
    inner = map_attributes(
        model
        | {"ai.operationId": "ai.embed.doEmbed", "ai.usage.tokens": 3}
        | {"ai.values": ['"a word"'], "ai.embeddings": ["[0.5,1]"]}
    )
    outer = map_attributes(
        {"ai.operationId": "ai.embed", "ai.value": '"a word"', "ai.embedding": "[0.5,1]"}
    )

    assert inner.columns["run_type"] == "embedding"
    assert (inner.inputs, inner.outputs) == ({"input": ["a word"]}, {"embeddings": [[0.5, 1]]})
    assert (inner.columns["prompt_tokens"], inner.columns["total_tokens"]) == (3, 3)
    assert (outer.inputs, outer.outputs) == ({"input": "a word"}, {"embedding": [0.5, 1]})


def test_the_first_token_event_of_openinference_sets_the_time_of_the_first_token() -> None:
    run = map_with(
        attributes={"openinference.span.kind": "LLM"},
        events=[event("First Token Stream Event", at=0.25)],
    )

    assert run.columns["first_token_time"] == datetime.fromtimestamp(
        (BEGIN + SECOND // 4) / 1e9, UTC
    )


@pytest.mark.parametrize(
    ("kind", "expected"), [(3, "client"), (6, 6), (-1, -1), (-7, -7), (-(2**31), -(2**31))]
)
def test_unknown_kind_of_a_span_is_kept_as_its_number(kind: int, expected: str | int) -> None:
    assert MappedRun(span(1, kind=kind)).extra["otel"]["kind"] == expected
