"""Spans of LiteLLM's callback; whole traces are in `tests/field/test_instrumentations.py`."""

from __future__ import annotations

from typing import Any

import pytest

from apps.ingest.otlp.litellm import complete_call, parse_literal, rewrite_raw_request
from apps.ingest.otlp.run_mapping import map_span
from apps.ingest.otlp.spans import Span, SpanSource

CALL = {
    "litellm.call_id": "id",
    "litellm.cache_hit": False,
    "gen_ai.system": "openai",
    "gen_ai.operation.name": "chat",
    "gen_ai.response.model": "gpt-4o",
    "gen_ai.output.messages": "[]",
    "llm.is_streaming": "False",
}
TOOL_CALL = {
    "gen_ai.completion.0.function_call.name": "get_weather",
    "gen_ai.completion.0.function_call.arguments": "{}",
}


def build_span(scope: str, attributes: dict[str, Any]) -> Span:
    source = SpanSource({}, scope)
    return Span(source, b"t" * 16, b"s" * 8, b"", "span", 1, 2, dict(attributes), [], [])


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": "It's \"quoted\", None, True and {'x': 1}"}],
        {
            "text": "line\nbreak \\ \t \x00 é \U0001f600 \u2028",
            "none": None,
            "flags": [True, False],
        },
        {"numbers": [1, -2.5, 1e300], "empty": [{}, [], ""]},
        {"'": '"', '"': "'", "both": "'\""},
    ],
)
def test_literals_are_read_like_python_reads_them(value: Any) -> None:
    assert parse_literal(repr(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "[object()]",
        "{'a': (1, 2)}",
        "{1: 2}",
        "['\\ud800']",
        "['\\x']",
        "['open",
        "[nan]",
        "['open\\",
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("['" + "\\'" * 500_000, id="escaped quotes"),
        "plain",
        "__import__('os')",
    ],
)
def test_other_text_stays_text(text: str) -> None:
    assert parse_literal(text) == text


@pytest.mark.parametrize(
    ("attributes", "inputs", "outputs", "model"),
    [
        (
            {
                "llm.anthropic.system": "Be brief.",
                "llm.anthropic.messages": "[{'role': 'user', 'content': 'Hello'}]",
                "llm.anthropic.max_tokens": 100,
                "llm.anthropic.model": "claude-sonnet-4-5",
                "llm.anthropic.content": "[{'type': 'text', 'text': 'Hi'}]",
                "llm.anthropic.usage": "{'input_tokens': 3, 'output_tokens': 1}",
            },
            {"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]},
            {
                "content": [{"type": "text", "text": "Hi"}],
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
            "claude-sonnet-4-5",
        ),
        (
            {
                "llm.gemini.contents": "[{'role': 'user', 'parts': [{'text': 'Hello'}]}]",
                "llm.gemini.candidates": "[{'content': {'parts': [{'text': 'Hi'}]}}]",
                "llm.gemini.usageMetadata": "{'promptTokenCount': 3}",
                "llm.gemini.modelVersion": "gemini-2.5-flash",
            },
            {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
            {
                "candidates": [{"content": {"parts": [{"text": "Hi"}]}}],
                "usageMetadata": {"promptTokenCount": 3},
            },
            "gemini-2.5-flash",
        ),
    ],
)
def test_raw_request_has_inputs_outputs_and_model(
    attributes: dict[str, Any], inputs: Any, outputs: Any, model: str
) -> None:
    span = build_span("litellm", attributes)

    assert rewrite_raw_request(span)
    assert span.attributes["gen_ai.prompt"] == inputs
    assert span.attributes["gen_ai.completion"] == outputs
    assert span.attributes["gen_ai.response.model"] == model


@pytest.mark.parametrize(
    ("scope", "attributes"),
    [
        ("litellm", {}),
        ("litellm", {"guardrail_name": "pii"}),
        ("litellm", {"llm.openai.messages": "[]"}),
        ("litellm", {"llm.openai.messages": "[]", "llm.openai.usage": "{}"}),
        ("litellm", {"llm.azure.input": "['one']", "llm.azure.data": "[]"}),
        ("litellm", {**CALL, "llm.openai.messages": "[]", "llm.openai.choices": "[]"}),
        ("app", {"llm.openai.messages": "[]", "llm.openai.choices": "[]"}),
    ],
)
def test_other_spans_are_no_raw_requests(scope: str, attributes: dict[str, Any]) -> None:
    span = build_span(scope, attributes)

    assert not rewrite_raw_request(span)
    assert span.attributes == attributes


def test_span_of_the_application_contains_calls_if_each_has_a_span() -> None:
    assert complete_call(build_span("app", CALL))
    # Its own span is the call.
    assert not complete_call(build_span("litellm", CALL))
    # The application says that it is one.
    assert not complete_call(build_span("app", CALL | {"openinference.span.kind": "LLM"}))
    # Without content or as a stream, this is all that is known of the call.
    for name in ("gen_ai.output.messages", "gen_ai.system", "gen_ai.response.model"):
        assert not complete_call(
            build_span("app", {key: value for key, value in CALL.items() if key != name})
        )
    assert not complete_call(build_span("app", CALL | {"llm.is_streaming": "True"}))
    assert not complete_call(build_span("app", CALL | {"litellm.cache_hit": True}))


@pytest.mark.parametrize(
    ("scope", "reason", "is_joined"),
    [
        ("litellm", "tool_calls", True),
        ("litellm", "stop", True),
        ("app", "tool_calls", True),
        ("app", "stop", False),  # of an earlier call
    ],
)
def test_tool_calls_are_put_into_the_answer(
    scope: str,
    reason: str,
    *,
    is_joined: bool,
) -> None:
    output = f'[{{"role": "assistant", "parts": [], "finish_reason": "{reason}"}}]'
    span = build_span(scope, CALL | TOOL_CALL | {"gen_ai.output.messages": output})

    complete_call(span)
    assert not TOOL_CALL.keys() & span.attributes.keys()
    messages = span.attributes["gen_ai.output.messages"]
    function = {"name": "get_weather", "arguments": "{}"}
    if is_joined:
        assert messages[0]["tool_calls"] == [{"type": "function", "function": function}]
    else:
        assert messages == output


def test_details_of_usage_are_read() -> None:
    usage = repr(
        {
            "prompt_tokens": 80,
            "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 8},
        }
    )
    span = build_span("litellm", CALL | {"metadata.usage_object": usage})

    complete_call(span)
    assert span.attributes["gen_ai.usage.prompt_tokens_details.cached_tokens"] == 64
    assert span.attributes["gen_ai.usage.completion_tokens_details.reasoning_tokens"] == 8


@pytest.mark.parametrize("function", ["embedding", "aembedding"])
def test_embeddings_have_their_run_type(function: str) -> None:
    span = build_span("litellm", {"litellm.call_id": "id", "llm.request.type": function})

    assert map_span(span).run_type == "embedding"
