"""Token counts and costs of the usage that libraries and providers report.

The prices are 3, 15, 0.3 (read), 3.75 (write) and 6 dollars (write for an hour) per million.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from apps.core.linear_regex import compile_pattern
from apps.ingest.operations import RunOperation
from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp.run_mapping import map_span
from apps.ingest.run_content import parse_operation
from apps.ingest.token_usage import usage_columns
from apps.trace_store.pricing import costs
from apps.trace_store.pricing.costs import ModelReference
from apps.trace_store.pricing.entries import PriceEntry
from tests.factories.spans import export, span

RUN_ID = UUID("01900000-0000-7000-8000-000000000000")
PRICES = PriceEntry(
    id=RUN_ID,
    name="model",
    pattern=compile_pattern("model"),
    match_path=("model",),
    provider=None,
    start_time=None,
    prompt_cost=Decimal("0.000003"),
    completion_cost=Decimal("0.000015"),
    prompt_cost_details={
        "cache_read": Decimal("0.0000003"),
        "cache_creation": Decimal("0.00000375"),
        "ephemeral_1h_input_tokens": Decimal("0.000006"),
        "audio": Decimal("0.00001"),
    },
    completion_cost_details={},
    match_pattern="model",
)


def price(columns: dict[str, Any]) -> tuple[Any, Any, Any, Decimal | None]:
    """The tokens and the cost of columns."""
    details = dict(columns.get("usage_details", {}))
    total_cost = columns.get("total_cost")
    if costs.needs_cost(columns):
        total_cost = costs.compute_costs(PRICES, columns, details)["total_cost"]
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return (*(columns.get(name) for name in names), total_cost)


def price_outputs(outputs: dict[str, Any]) -> tuple[Any, Any, Any, Decimal | None]:
    return price(usage_columns("llm", outputs, None))


def price_span(attributes: dict[str, Any], scope: str = "lib") -> tuple[Any, Any, Any, Any]:
    """The tokens and the cost of a span, through the parser of the ingest."""
    message = span(attributes={"gen_ai.request.model": "model"} | attributes)
    (decoded,) = protobuf_decoder.decode(export(message, scope=scope).SerializeToString()).spans
    run = map_span(decoded)
    run.id = RUN_ID
    operation = RunOperation(False, run)

    def add_costs(model: ModelReference, columns: dict[str, Any], details: dict[str, Any]) -> None:
        if costs.needs_cost(columns):
            columns |= costs.compute_costs(PRICES, columns, details)

    parse_operation(operation, add_costs=add_costs)
    columns = operation.content.columns
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "total_cost")
    return tuple(columns.get(name) for name in names)


def usage_metadata(tokens: tuple[int, int, int], read: int = 0, **details: Any) -> dict[str, Any]:
    usage = dict(zip(("input_tokens", "output_tokens", "total_tokens"), tokens, strict=True))
    if read:
        details["input_token_details"] = {"cache_read": read}
    return {"usage_metadata": usage | details}


OUTPUTS = {
    # Uncached tokens beside cached ones; the total shows it (langsmith-sdk#1858).
    "cache beside the input": (
        usage_metadata((5000, 12, 8012), read=3000),
        (8000, 12, 8012, "0.01608"),
    ),
    # As many uncached as cached tokens (langsmith-sdk#1858).
    "equal amounts": (usage_metadata((3000, 12, 6012), read=3000), (6000, 12, 6012, "0.01008")),
    # The same counts inside the total (langchain-openai 1.7.4).
    "cache inside the input": (
        usage_metadata((5000, 12, 5012), read=3000),
        (5000, 12, 5012, "0.00708"),
    ),
    # The answer without the thoughts, which are in the total (langsmith 0.15.0, wrap_gemini).
    "thoughts beside the output": (
        usage_metadata((4688, 132, 5620), output_token_details={"reasoning": 800}),
        (4688, 932, 5620, "0.028044"),
    ),
    # Reads and writes beside the input (phoenix#10036).
    "Bedrock by LangChain": (
        usage_metadata(
            (3, 12, 13256), input_token_details={"cache_creation": 25, "cache_read": 13216}
        ),
        (13244, 12, 13256, "0.00424755"),
    ),
    # A total with thoughts that no part names (any-llm#1290).
    "thoughts only in the total": (
        usage_metadata((4688, 132, 5620)),
        (4688, 932, 5620, "0.028044"),
    ),
    # More cached tokens than input, without a total (langsmith-sdk PR 2519).
    "more cached than input": (
        {
            "usage_metadata": {
                "input_tokens": 19,
                "output_tokens": 1,
                "input_token_details": {"cache_read": 39000},
            }
        },
        (39019, 1, 39020, "0.011772"),
    ),
    # All cache writes, and the same writes by lifetime (langsmith-sdk#2150).
    "cache writes are charged once": (
        usage_metadata(
            (1000, 0, 1000),
            input_token_details={"cache_creation": 900, "ephemeral_5m_input_tokens": 900},
        ),
        (1000, 0, 1000, "0.003675"),
    ),
    # The name of the JavaScript client for writes that last an hour (langsmith 0.12.0).
    "ephemeral_1hr_input_tokens": (
        usage_metadata((1000, 0, 1000), input_token_details={"ephemeral_1hr_input_tokens": 900}),
        (1000, 0, 1000, "0.0057"),
    ),
    # Kinds of a service tier (langchain-openai 1.7.4).
    "service tier": (
        usage_metadata(
            (1000, 0, 1000), input_token_details={"priority": 200, "priority_cache_read": 800}
        ),
        (1000, 0, 1000, "0.00084"),
    ),
    # Cached tokens beyond the first 200,000 (langsmith 0.15.0, wrap_gemini).
    "long prompt": (
        usage_metadata(
            (300_000, 0, 300_000),
            input_token_details={"cache_read": 200_000, "cache_read_over_200k": 50_000},
        ),
        (300_000, 0, 300_000, "0.225"),
    ),
    # Anthropic's API: lifetimes beside the sum, all beside the input (langchain-anthropic 1.7.10).
    "Anthropic": (
        {
            "usage": {
                "input_tokens": 200,
                "output_tokens": 10,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 100,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 60,
                    "ephemeral_1h_input_tokens": 40,
                },
                "server_tool_use": {"web_search_requests": 1},
            }
        },
        (1200, 10, 1210, "0.001485"),
    ),
    # OpenAI's chat completions (openai 2).
    "OpenAI chat": (
        {
            "usage": {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "total_tokens": 2306,
                "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 64},
            }
        },
        (2006, 300, 2306, "0.005334"),
    ),
    # LiteLLM repeats Anthropic's names beside a complete total (litellm#11364).
    "LiteLLM": (
        {
            "usage": {
                "prompt_tokens": 98805,
                "completion_tokens": 5120,
                "total_tokens": 103925,
                "prompt_tokens_details": {"cached_tokens": 66360, "cache_creation_tokens": 32435},
                "cache_read_input_tokens": 66360,
                "cache_creation_input_tokens": 32435,
            }
        },
        (98805, 5120, 103925, "0.21836925"),
    ),
    # OpenAI's responses (openai 2).
    "OpenAI responses": (
        {
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 100,
                "total_tokens": 1100,
                "input_tokens_details": {"cached_tokens": 600},
                "output_tokens_details": {"reasoning_tokens": 80},
            }
        },
        (1000, 100, 1100, "0.00288"),
    ),
    # Cached audio is a part of both counts (OpenAI's Realtime API, langsmith 0.15.0).
    "Realtime": (
        {
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 0,
                "total_tokens": 1000,
                "input_token_details": {
                    "cached_tokens": 600,
                    "audio_tokens": 500,
                    "text_tokens": 500,
                    "cached_tokens_details": {"audio_tokens": 400, "text_tokens": 200},
                },
            }
        },
        (1000, 0, 1000, "0.00208"),
    ),
    # Reasoning beside the completion (vercel/ai#9774, xAI).
    "xAI": (
        {
            "usage": {
                "prompt_tokens": 2640,
                "completion_tokens": 182,
                "total_tokens": 3494,
                "prompt_tokens_details": {"text_tokens": 2640, "cached_tokens": 473},
                "completion_tokens_details": {"reasoning_tokens": 672},
            }
        },
        (2640, 854, 3494, "0.0194529"),
    ),
    # Tool prompts and thoughts beside the counts, the cached part in a modality (Gemini's API).
    "Gemini": (
        {
            "usageMetadata": {
                "promptTokenCount": 100,
                "candidatesTokenCount": 5,
                "thoughtsTokenCount": 20,
                "toolUsePromptTokenCount": 10,
                "totalTokenCount": 135,
                "cachedContentTokenCount": 50,
                "promptTokensDetails": [
                    {"modality": "AUDIO", "tokenCount": 70},
                    {"modality": "TEXT", "tokenCount": 30},
                ],
                "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 40}],
            }
        },
        (110, 25, 135, "0.00078"),
    ),
    # Thoughts inside the candidates; the total shows it (simonw/llm-gemini#75).
    "Gemini with thoughts inside": (
        {
            "usage_metadata": {
                "prompt_token_count": 100,
                "candidates_token_count": 25,
                "thoughts_token_count": 20,
                "total_token_count": 125,
            }
        },
        (100, 25, 125, "0.000675"),
    ),
    # Bedrock's Converse API, with lifetimes (langchain-aws 1.9.1).
    "Bedrock": (
        {
            "usage": {
                "inputTokens": 4,
                "outputTokens": 71,
                "totalTokens": 1650,
                "cacheReadInputTokens": 1000,
                "cacheWriteInputTokens": 575,
                "cacheDetails": [{"ttl": "1h", "inputTokens": 575}],
            }
        },
        (1579, 71, 1650, "0.004827"),
    ),
    # A result of AI SDK 6 (ai 6.0.326).
    "AI SDK 6 result": (
        {
            "usage": {
                "inputTokens": 1000,
                "inputTokenDetails": {
                    "noCacheTokens": 100,
                    "cacheReadTokens": 800,
                    "cacheWriteTokens": 100,
                },
                "outputTokens": 50,
                "outputTokenDetails": {"textTokens": 20, "reasoningTokens": 30},
                "totalTokens": 1050,
                "cachedInputTokens": 800,
                "raw": {"input_tokens": 100, "cache_read_input_tokens": 800},
            }
        },
        (1000, 50, 1050, "0.001665"),
    ),
    # The usage of a model of AI SDK 6 (langsmith-sdk#2250).
    "AI SDK 6 model": (
        {
            "usage": {
                "inputTokens": {"total": 1000, "noCache": 200, "cacheRead": 800, "cacheWrite": 0},
                "outputTokens": {"total": 50, "text": 20, "reasoning": 30},
            }
        },
        (1000, 50, 1050, "0.00159"),
    ),
    # Cohere's API (genai-prices 0.2.3).
    "Cohere": (
        {
            "usage": {
                "billed_units": {"input_tokens": 5, "output_tokens": 2},
                "tokens": {"input_tokens": 1000, "output_tokens": 10},
                "cached_tokens": 500,
            }
        },
        (1000, 10, 1010, "0.0018"),
    ),
    # DeepSeek's API (genai-prices 0.2.3).
    "DeepSeek": (
        {
            "usage": {
                "prompt_tokens": 1000,
                "completion_tokens": 0,
                "total_tokens": 1000,
                "prompt_cache_hit_tokens": 800,
                "prompt_cache_miss_tokens": 200,
            }
        },
        (1000, 0, 1000, "0.00084"),
    ),
    # Several prompts in one call: kinds are summed as the totals are (langchain-core 1.7.2).
    "a batch of generations": (
        {
            "generations": [
                [{"message": {"kwargs": usage_metadata((1000, 0, 1000), read=800)}}],
                [{"message": {"kwargs": usage_metadata((1000, 0, 1000), read=600)}}],
            ]
        },
        (2000, 0, 2000, "0.00222"),
    ),
}


@pytest.mark.parametrize(("outputs", "expected"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_are_counted_and_priced(outputs: dict[str, Any], expected: Any) -> None:
    *tokens, cost = expected

    assert price_outputs(outputs) == (*tokens, Decimal(cost))


GEN_AI = {"gen_ai.usage.input_tokens": 130_213, "gen_ai.usage.output_tokens": 100}
INCLUSIVE = (130_213, 100, 130_313, "0.04490025")
SPANS = {
    # pydantic-ai-slim 1 (langfuse#12306).
    "pydantic-ai 1": (
        GEN_AI
        | {
            "gen_ai.usage.cache_read_tokens": 128_955,
            "gen_ai.usage.cache_write_tokens": 1253,
        },
        INCLUSIVE,
    ),
    # pydantic-ai-slim 2.68.0 with Anthropic's details.
    "pydantic-ai 2": (
        GEN_AI
        | {
            "gen_ai.usage.details.cache_read_input_tokens": 128_955,
            "gen_ai.usage.details.cache_creation_input_tokens": 1253,
            "gen_ai.usage.details.input_tokens": 5,
        },
        INCLUSIVE,
    ),
    # google-adk 1 (langfuse#12306).
    "ADK 1": (
        {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cached_tokens": 800},
        (1000, None, 1000, "0.00084"),
    ),
    # google-adk 2.13.0 and OpenTelemetry's conventions.
    "ADK 2": (
        {
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.output_tokens": 50,
            "gen_ai.usage.cache_read.input_tokens": 800,
            "gen_ai.usage.reasoning.output_tokens": 40,
        },
        (1000, 50, 1050, "0.00159"),
    ),
    # ai 6.0.326 (langsmith-sdk#2250).
    "AI SDK 6": (
        {
            "ai.usage.inputTokens": 1000,
            "ai.usage.inputTokenDetails.noCacheTokens": 100,
            "ai.usage.inputTokenDetails.cacheReadTokens": 800,
            "ai.usage.inputTokenDetails.cacheWriteTokens": 100,
            "ai.usage.outputTokens": 50,
            "ai.usage.totalTokens": 1050,
            "ai.model.provider": "anthropic.messages",
            "ai.usage.cachedInputTokens": 800,
        },
        (1000, 50, 1050, "0.001665"),
    ),
    # ai 5.0.277: Anthropic's input excludes the cache (sentry-javascript#21488).
    "AI SDK 5 with Anthropic": (
        {
            "ai.usage.inputTokens": 1000,
            "ai.usage.outputTokens": 50,
            "ai.usage.totalTokens": 1050,
            "ai.model.provider": "anthropic.messages",
            "ai.usage.cachedInputTokens": 800,
        },
        (1800, 50, 1850, "0.00399"),
    ),
    # ai 5.0.277: OpenAI's input includes the cache.
    "AI SDK 5 with OpenAI": (
        {
            "ai.usage.inputTokens": 1000,
            "ai.usage.outputTokens": 50,
            "ai.usage.totalTokens": 1050,
            "ai.model.provider": "openai.chat",
            "ai.usage.cachedInputTokens": 800,
        },
        (1000, 50, 1050, "0.00159"),
    ),
    # opentelemetry-instrumentation-anthropic 0.62.4 (OpenLLMetry).
    "OpenLLMetry": (
        GEN_AI
        | {
            "gen_ai.usage.total_tokens": 130_313,
            "gen_ai.usage.cache_read.input_tokens": 128_955,
            "gen_ai.usage.cache_creation.input_tokens": 1253,
        },
        INCLUSIVE,
    ),
    # openinference-instrumentation-anthropic 3.1.0.
    "OpenInference": (
        {
            "llm.token_count.prompt": 130_213,
            "llm.token_count.completion": 100,
            "llm.token_count.total": 130_313,
            "llm.token_count.prompt_details.cache_read": 128_955,
            "llm.token_count.prompt_details.cache_write": 1253,
        },
        INCLUSIVE,
    ),
    # Bedrock's counts, with the cache in the total only (phoenix#10783).
    "OpenInference with Bedrock": (
        {
            "llm.token_count.total": 8712,
            "llm.token_count.prompt": 3,
            "llm.token_count.completion": 442,
            "llm.token_count.prompt_details.cache_read": 7917,
            "llm.token_count.prompt_details.cache_write": 350,
        },
        (8270, 442, 8712, "0.0103266"),
    ),
    # The cache is in the total, without its parts (phoenix#13379).
    "cache only in the total": (
        {
            "gen_ai.provider.name": "aws.bedrock",
            "llm.token_count.total": 58_291,
            "llm.token_count.prompt": 4299,
            "llm.token_count.completion": 631,
        },
        (57_660, 631, 58_291, "0.182445"),
    ),
    # openinference-instrumentation-google-genai 1.4.14: audio contains cached audio.
    "OpenInference with audio": (
        {
            "llm.token_count.prompt": 1000,
            "llm.token_count.completion": 0,
            "llm.token_count.total": 1000,
            "llm.token_count.prompt_details.cache_read": 800,
            "llm.token_count.prompt_details.audio": 900,
        },
        (1000, 0, 1000, "0.00224"),
    ),
    # openlit 1.45.0.
    "OpenLIT": (
        {
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.output_tokens": 50,
            "gen_ai.usage.prompt_tokens_details.cached_tokens": 800,
            "gen_ai.usage.completion_tokens_details.reasoning_tokens": 40,
        },
        (1000, 50, 1050, "0.00159"),
    ),
    # strands-agents 1.62.0: Bedrock's counts, with the cache in the total only.
    "Strands": (
        {
            "gen_ai.usage.input_tokens": 4,
            "gen_ai.usage.output_tokens": 71,
            "gen_ai.usage.total_tokens": 1650,
            "gen_ai.usage.cache_read_input_tokens": 1000,
            "gen_ai.usage.cache_write_input_tokens": 575,
        },
        (1579, 71, 1650, "0.00353325"),
    ),
    # sentry-sdk 2.75.0.
    "Sentry": (
        {
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.output_tokens": 50,
            "gen_ai.usage.input_tokens.cached": 700,
            "gen_ai.usage.input_tokens.cache_write": 100,
            "gen_ai.usage.output_tokens.reasoning": 40,
        },
        (1000, 50, 1050, "0.001935"),
    ),
    # Claude Code's api_request event has the counts of Anthropic's API.
    "Claude Code": (
        {
            "input_tokens": 200,
            "output_tokens": 10,
            "cache_read_tokens": 900,
            "cache_creation_tokens": 100,
        },
        (1200, 10, 1210, "0.001395"),
    ),
}


@pytest.mark.parametrize(("attributes", "expected"), SPANS.values(), ids=SPANS)
def test_spans_are_counted_and_priced(attributes: dict[str, Any], expected: Any) -> None:
    *tokens, cost = expected

    assert price_span(attributes) == (*tokens, Decimal(cost))


def test_the_total_of_the_bedrock_instrumentation_excludes_the_cache() -> None:
    # opentelemetry-instrumentation-bedrock 0.62.4 adds up input and output.
    attributes = {
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.total_tokens": 1050,
        "gen_ai.usage.cache_read.input_tokens": 800,
    }

    priced = price_span(attributes, scope="opentelemetry.instrumentation.bedrock")

    assert priced == (1800, 50, 1850, Decimal("0.00399"))
