"""Extracts token counts and costs that a run reports.

Missing counts are not stored as estimates, which would look like reported counts in sums: see
`apps/trace_store/token_estimates.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

_MAX_COUNT = 2**62
_MAX_COST_EXPONENT = 12
_COST_SCALE = 18
"""Digits after the decimal point of a cost."""
_DETAILS = {
    "input_token_details": "prompt_token_details",
    "output_token_details": "completion_token_details",
    "input_cost_details": "prompt_cost_details",
    "output_cost_details": "completion_cost_details",
}
_MODEL_RUN_TYPES = frozenset({"llm", "embedding", None})

# -- names of providers ------------------------------------------------------

_INPUT = (
    *("prompt_tokens", "input_tokens", "promptTokens", "inputTokens"),
    *("promptTokenCount", "prompt_token_count", "inputTokenCount", "prompt_eval_count"),
)
_OUTPUT = (
    *("completion_tokens", "output_tokens", "completionTokens", "outputTokens"),
    *("candidatesTokenCount", "candidates_token_count", "outputTokenCount", "eval_count"),
)
_TOTAL = ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count")
_DETAIL_PATHS = (  # side, kind of token, path of the count
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
_NOT_IN_INPUT = (
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
    *("cacheReadInputTokens", "cacheWriteInputTokens"),
)
"""Counts that Anthropic and Bedrock do not include in the input count."""
_NOT_IN_OUTPUT = ("thoughtsTokenCount", "thoughts_token_count")
"""Counts that Gemini does not include in the output count."""
_USAGE_KEYS = ("usage", "token_usage", "usageMetadata", "tokenUsage", "usage_metadata")


def usage_columns(
    run_type: str | None, outputs: Any, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the columns of reported tokens and costs, without those that are not reported.

    `usage_metadata` is used for every run type; provider formats only for model calls, because
    other runs often return the response of a model unchanged.
    """
    usage = _usage_metadata(outputs) or _usage_metadata(metadata)
    if usage is None and run_type in _MODEL_RUN_TYPES and outputs:
        usage = _provider_usage(outputs)
    return {} if usage is None else _to_columns(usage)


def _usage_metadata(holder: Any) -> dict[str, Any] | None:
    usage = holder.get("usage_metadata") if isinstance(holder, dict) else None
    if not isinstance(usage, dict) or not usage:
        return None
    # Responses of Gemini use the same key with other names of counts.
    is_gemini = any(name in usage for name in ("prompt_token_count", "promptTokenCount"))
    return _normalize_counts(usage) if is_gemini else usage


def _provider_usage(outputs: Any) -> dict[str, Any] | None:
    """Usage in the formats of model providers and LangChain results."""
    for candidate in _usage_objects(outputs):
        if (usage := _normalize_counts(candidate)) is not None:
            return usage
    if not isinstance(outputs, dict):
        return None
    if (usage := _sum_messages(_flatten(outputs.get("generations")))) is not None:
        return usage
    for value in outputs.values():
        message = value[-1] if isinstance(value, list) and value else value
        if (usage := _message_usage(message)) is not None:
            return usage
    return None


def _usage_objects(outputs: Any) -> Iterator[dict[str, Any]]:
    """Objects that may contain counts, most likely first."""
    if not isinstance(outputs, dict):
        return
    llm_output, meta = outputs.get("llm_output"), outputs.get("meta")
    response = outputs.get("response_metadata")
    for holder in (outputs, llm_output, response, outputs.get("response")):
        if isinstance(holder, dict):
            yield from (
                usage for name in _USAGE_KEYS if isinstance(usage := holder.get(name), dict)
            )
    for holder in (outputs.get("usage"), meta):  # Cohere
        if isinstance(holder, dict):
            yield from (
                usage
                for name in ("tokens", "billed_units")
                if isinstance(usage := holder.get(name), dict)
            )
    if "prompt_eval_count" in outputs:  # Ollama
        yield outputs


def _message_usage(message: Any) -> dict[str, Any] | None:
    """The usage of a LangChain message, plain or serialized."""
    if not isinstance(message, dict):
        return None
    if isinstance(inner := message.get("message"), dict):
        message = inner
    return _usage_metadata(message) or _usage_metadata(message.get("kwargs"))


def _sum_messages(generations: list[Any]) -> dict[str, Any] | None:
    """The sum over the messages of `generations`, with the details of the first."""
    total: dict[str, Any] = {}
    for generation in generations:
        usage = _message_usage(generation)
        for key in ("input_tokens", "output_tokens", "total_tokens") if usage else ():
            if (count := _parse_count(usage.get(key) if usage else None)) is not None:
                total[key] = total.get(key, 0) + count
        if usage and total and "input_token_details" not in total:
            total |= {key: usage[key] for key in _DETAILS if key in usage}
    return total or None


def _flatten(generations: Any) -> list[Any]:
    if not isinstance(generations, list):
        return []
    return [
        item for group in generations for item in (group if isinstance(group, list) else [group])
    ]


def _normalize_counts(usage: dict[str, Any]) -> dict[str, Any] | None:
    """The counts of a provider under the names of `usage_metadata`."""
    prompt, completion = _first_count(usage, *_INPUT), _first_count(usage, *_OUTPUT)
    if prompt is not None and "prompt_tokens" not in usage:
        prompt += sum(_parse_count(usage.get(name)) or 0 for name in _NOT_IN_INPUT)
    if completion is not None:
        completion += sum(_parse_count(usage.get(name)) or 0 for name in _NOT_IN_OUTPUT)
    counts: dict[str, Any] = {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": _first_count(usage, *_TOTAL),
    }
    for side, kind, path in _DETAIL_PATHS:
        count: Any = usage
        for name in path:
            count = count.get(name) if isinstance(count, dict) else None
        if (number := _parse_count(count)) and (counts["input_tokens"] or counts["output_tokens"]):
            counts.setdefault(f"{side}_token_details", {}).setdefault(kind, number)
    if isinstance(cost := usage.get("cost"), int | float):  # OpenRouter
        counts["total_cost"] = cost
    known_counts = {key: value for key, value in counts.items() if value is not None}
    return (
        known_counts
        if any(key in known_counts for key in ("input_tokens", "output_tokens", "total_tokens"))
        else None
    )


def _first_count(usage: dict[str, Any], *names: str) -> int | None:
    return next((n for name in names if (n := _parse_count(usage.get(name))) is not None), None)


def _to_columns(usage: dict[str, Any]) -> dict[str, Any]:
    prompt, completion = (
        _parse_count(usage.get("input_tokens")),
        _parse_count(usage.get("output_tokens")),
    )
    total = _parse_count(usage.get("total_tokens"))
    if total is None and (prompt is not None or completion is not None):
        total = (prompt or 0) + (completion or 0)
    prompt_cost, completion_cost = (
        _parse_cost(usage.get("input_cost")),
        _parse_cost(usage.get("output_cost")),
    )
    total_cost = _parse_cost(usage.get("total_cost"))
    if total_cost is None and (prompt_cost is not None or completion_cost is not None):
        total_cost = (prompt_cost or Decimal(0)) + (completion_cost or Decimal(0))
    details = {
        column: amounts
        for key, column in _DETAILS.items()
        if (amounts := _parse_amounts(usage.get(key), is_cost=key.endswith("cost_details")))
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


def _parse_amounts(details: Any, *, is_cost: bool) -> dict[str, int | float]:
    """The counts or costs by kind, without those that are no numbers.

    The public clients read whole numbers of tokens and numbers of costs: `Run` in `schemas.py` of
    `langsmith` 0.11.
    """
    amounts: dict[str, int | float] = {}
    for kind, value in details.items() if isinstance(details, dict) else ():
        if not is_cost:
            if (count := _parse_count(value)) is not None:
                amounts[kind] = count
        elif (cost := _parse_cost(value)) is not None:
            # Numbers stay as they were sent: a conversion could change their digits.
            amounts[kind] = value if isinstance(value, int | float) else float(cost)
    return amounts


def _parse_count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MAX_COUNT else None


def _parse_cost(value: Any) -> Decimal | None:
    """The exact amount; None for infinite or implausibly large values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount.adjusted() > _MAX_COST_EXPONENT:
        return None
    with localcontext(prec=_MAX_COST_EXPONENT + 1 + _COST_SCALE):
        return round(amount, _COST_SCALE)
