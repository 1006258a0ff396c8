"""Tokens and costs that a run tells about itself.

Where a model's call says nothing about its tokens, nothing is made up: a guess by the length of its
texts would stand in sums beside what is known, and look like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

_LARGEST = 2**62
_DETAILS = {
    "input_token_details": "prompt_token_details",
    "output_token_details": "completion_token_details",
    "input_cost_details": "prompt_cost_details",
    "output_cost_details": "completion_cost_details",
}
_CALLS = frozenset({"llm", "embedding", None})

# -- names that providers have for the same ----------------------------------

_INPUT = (
    *("prompt_tokens", "input_tokens", "promptTokens", "inputTokens"),
    *("promptTokenCount", "prompt_token_count", "inputTokenCount", "prompt_eval_count"),
)
_OUTPUT = (
    *("completion_tokens", "output_tokens", "completionTokens", "outputTokens"),
    *("candidatesTokenCount", "candidates_token_count", "outputTokenCount", "eval_count"),
)
_TOTAL = ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count")
_KINDS = (  # side, kind, and where its count stands
    ("input", "cache_read", ("prompt_tokens_details", "cached_tokens")),
    ("input", "cache_read", ("input_tokens_details", "cached_tokens")),
    ("input", "cache_read", ("prompt_cache_hit_tokens",)),
    ("input", "cache_read", ("cachedContentTokenCount",)),
    ("input", "cache_read", ("cached_content_token_count",)),
    ("input", "cache_read", ("cacheReadInputTokens",)),
    ("input", "cache_read", ("cachedInputTokens",)),
    ("input", "cache_read", ("cache_read_input_tokens",)),
    ("input", "cache_creation", ("cache_creation_input_tokens",)),
    ("input", "cache_creation", ("cacheWriteInputTokens",)),
    ("input", "ephemeral_5m_input_tokens", ("cache_creation", "ephemeral_5m_input_tokens")),
    ("input", "ephemeral_1h_input_tokens", ("cache_creation", "ephemeral_1h_input_tokens")),
    ("input", "audio", ("prompt_tokens_details", "audio_tokens")),
    ("input", "audio", ("input_tokens_details", "audio_tokens")),
    ("output", "reasoning", ("completion_tokens_details", "reasoning_tokens")),
    ("output", "reasoning", ("output_tokens_details", "reasoning_tokens")),
    ("output", "reasoning", ("thoughtsTokenCount",)),
    ("output", "reasoning", ("thoughts_token_count",)),
    ("output", "reasoning", ("reasoningTokens",)),
    ("output", "audio", ("completion_tokens_details", "audio_tokens")),
    ("output", "audio", ("output_tokens_details", "audio_tokens")),
)
_BESIDE_INPUT = (
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
    *("cacheReadInputTokens", "cacheWriteInputTokens"),
)
"""What Anthropic and Bedrock count beside the input and not in it."""
_BESIDE_OUTPUT = ("thoughtsTokenCount", "thoughts_token_count")
"""What Gemini counts beside the answer."""
_HOLDERS = ("usage", "token_usage", "usageMetadata", "tokenUsage", "usage_metadata")


def usage_columns(
    run_type: str | None, outputs: Any, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """The columns of tokens and costs, without those that nothing was said about.

    `usage_metadata` counts on every kind of run; a provider's own shape only on a model's call,
    because other runs often pass such an answer through.
    """
    told = _usage_metadata(outputs) or _usage_metadata(metadata)
    if told is None and run_type in _CALLS and outputs:
        told = _of_provider(outputs)
    return {} if told is None else _columns(told)


def _usage_metadata(holder: Any) -> dict[str, Any] | None:
    found = holder.get("usage_metadata") if isinstance(holder, dict) else None
    if not isinstance(found, dict) or not found:
        return None
    # Gemini's own answers have the same name for numbers under other names.
    return found if _is_ours(found) else _from_counts(found)


def _is_ours(usage: dict[str, Any]) -> bool:
    return not any(name in usage for name in ("prompt_token_count", "promptTokenCount"))


def _of_provider(outputs: Any) -> dict[str, Any] | None:
    """Usage in the shapes of model providers and of LangChain's results."""
    for candidate in _candidates(outputs):
        if (found := _from_counts(candidate)) is not None:
            return found
    if not isinstance(outputs, dict):
        return None
    if (found := _sum_of_messages(_flat(outputs.get("generations")))) is not None:
        return found
    for value in outputs.values():
        message = value[-1] if isinstance(value, list) and value else value
        if (found := _of_message(message)) is not None:
            return found
    return None


def _candidates(outputs: Any) -> Iterator[dict[str, Any]]:
    """Objects that may hold counts, the likeliest first."""
    if not isinstance(outputs, dict):
        return
    llm_output, meta = outputs.get("llm_output"), outputs.get("meta")
    response = outputs.get("response_metadata")
    for holder in (outputs, llm_output, response, outputs.get("response")):
        if isinstance(holder, dict):
            yield from (found for name in _HOLDERS if isinstance(found := holder.get(name), dict))
    for holder in (outputs.get("usage"), meta):  # Cohere
        if isinstance(holder, dict):
            yield from (
                found
                for name in ("tokens", "billed_units")
                if isinstance(found := holder.get(name), dict)
            )
    if "prompt_eval_count" in outputs:  # Ollama
        yield outputs


def _of_message(message: Any) -> dict[str, Any] | None:
    """The usage that a message of LangChain has, as it is or serialized."""
    if not isinstance(message, dict):
        return None
    if isinstance(inner := message.get("message"), dict):
        message = inner
    return _usage_metadata(message) or _usage_metadata(message.get("kwargs"))


def _sum_of_messages(generations: list[Any]) -> dict[str, Any] | None:
    """The sum over the messages of `generations`; details as the first tells them."""
    total: dict[str, Any] = {}
    for one in generations:
        told = _of_message(one)
        for key in ("input_tokens", "output_tokens", "total_tokens") if told else ():
            if (count := _count(told.get(key) if told else None)) is not None:
                total[key] = total.get(key, 0) + count
        if told and total and "input_token_details" not in total:
            total |= {key: told[key] for key in _DETAILS if key in told}
    return total or None


def _flat(generations: Any) -> list[Any]:
    if not isinstance(generations, list):
        return []
    return [one for group in generations for one in (group if isinstance(group, list) else [group])]


def _from_counts(usage: dict[str, Any]) -> dict[str, Any] | None:
    """A provider's counts by our names."""
    prompt, completion = _first(usage, *_INPUT), _first(usage, *_OUTPUT)
    if prompt is not None and "prompt_tokens" not in usage:
        prompt += sum(_count(usage.get(name)) or 0 for name in _BESIDE_INPUT)
    if completion is not None:
        completion += sum(_count(usage.get(name)) or 0 for name in _BESIDE_OUTPUT)
    found: dict[str, Any] = {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": _first(usage, *_TOTAL),
    }
    for side, kind, path in _KINDS:
        count: Any = usage
        for name in path:
            count = count.get(name) if isinstance(count, dict) else None
        if (number := _count(count)) and (found["input_tokens"] or found["output_tokens"]):
            found.setdefault(f"{side}_token_details", {}).setdefault(kind, number)
    if isinstance(cost := usage.get("cost"), int | float):  # OpenRouter
        found["total_cost"] = cost
    known = {key: value for key, value in found.items() if value is not None}
    return (
        known
        if any(key in known for key in ("input_tokens", "output_tokens", "total_tokens"))
        else None
    )


def _first(usage: dict[str, Any], *names: str) -> int | None:
    return next((n for name in names if (n := _count(usage.get(name))) is not None), None)


def _columns(told: dict[str, Any]) -> dict[str, Any]:
    prompt, completion = _count(told.get("input_tokens")), _count(told.get("output_tokens"))
    total = _count(told.get("total_tokens"))
    if total is None and (prompt is not None or completion is not None):
        total = (prompt or 0) + (completion or 0)
    prompt_cost, completion_cost = _money(told.get("input_cost")), _money(told.get("output_cost"))
    total_cost = _money(told.get("total_cost"))
    if total_cost is None and (prompt_cost is not None or completion_cost is not None):
        total_cost = (prompt_cost or Decimal(0)) + (completion_cost or Decimal(0))
    details = {
        column: told[key]
        for key, column in _DETAILS.items()
        if isinstance(told.get(key), dict) and told[key]
    }
    columns = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        "prompt_cost": prompt_cost,
        "completion_cost": completion_cost,
        "total_cost": total_cost,
        "usage_details": details or None,
    }
    return {name: value for name, value in columns.items() if value is not None}


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _LARGEST else None


def _money(value: Any) -> Decimal | None:
    """An amount to the digit as it was sent; what no bill could hold is no amount."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount.adjusted() > 12:
        return None
    return round(amount, 18)
