"""Tokens and costs that a run tells about itself."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

_LARGEST = 2**62
_DETAILS = {
    "input_token_details": "prompt_token_details",
    "output_token_details": "completion_token_details",
    "input_cost_details": "prompt_cost_details",
    "output_cost_details": "completion_cost_details",
}


def usage_columns(
    run_type: str | None, outputs: Any, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """The columns of tokens and costs, without those that nothing was said about.

    `usage_metadata` counts on every kind of run; a provider's own shape only on a model's call,
    because other runs often pass such an answer through.
    """
    told = _usage_metadata(outputs) or _usage_metadata(metadata)
    if told is None and run_type in {"llm", "embedding", None}:
        told = _of_provider(outputs)
    return {} if told is None else _columns(told)


def _usage_metadata(holder: Any) -> dict[str, Any] | None:
    found = holder.get("usage_metadata") if isinstance(holder, dict) else None
    return found if isinstance(found, dict) and found else None


def _of_provider(outputs: Any) -> dict[str, Any] | None:
    """Usage in the shapes of model providers and of LangChain's results."""
    if not isinstance(outputs, dict):
        return None
    llm_output = outputs.get("llm_output")
    candidates = [outputs.get("usage"), outputs.get("token_usage")]
    if isinstance(llm_output, dict):
        candidates += [llm_output.get("token_usage"), llm_output.get("usage")]
    for candidate in candidates:
        if isinstance(candidate, dict) and (found := _from_counts(candidate)):
            return found
    return _of_generations(outputs.get("generations"))


def _of_generations(generations: Any) -> dict[str, Any] | None:
    """The sum over the messages of `generations`, a list or a list of lists."""
    total: dict[str, Any] = {}
    for one in _flat(generations):
        message = one.get("message") if isinstance(one, dict) else None
        if not isinstance(message, dict):
            continue
        told = _usage_metadata(message.get("kwargs")) or _usage_metadata(message)
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
    found = {
        "input_tokens": _first(usage, "prompt_tokens", "input_tokens", "promptTokens"),
        "output_tokens": _first(usage, "completion_tokens", "output_tokens", "completionTokens"),
        "total_tokens": _first(usage, "total_tokens", "totalTokens"),
    }
    known = {key: value for key, value in found.items() if value is not None}
    return known or None


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
