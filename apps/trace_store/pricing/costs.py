"""Computes the cost of model calls: token kinds at their own prices, then the remaining tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

from apps.trace_store.pricing import price_map
from apps.trace_store.pricing.entries import PriceEntry

_DIGITS = 60
"""Decimal precision that is exact for any token count and price."""
_KIND_NAMES = {
    "cache_write": "cache_creation",
    "cached": "cache_read",
    "ephemeral_1hr_input_tokens": "ephemeral_1h_input_tokens",
    "reasoning_tokens": "reasoning",
    "audio_tokens": "audio",
}
"""Other names of kinds in price entries, and the name in counts."""
_TIERS = ("priority_", "flex_")


@dataclass(frozen=True, slots=True)
class ModelReference:
    """The model names of a run by match path, and the provider."""

    names: Mapping[str, str]
    provider: str | None


def add_costs(
    workspace_id: UUID, model: ModelReference, columns: dict[str, Any], details: dict[str, Any]
) -> None:
    """Add costs to the columns of a run by the price map of the workspace.

    Does nothing if the client sent a cost or no entry matches.
    """
    if not needs_cost(columns):
        return
    start: datetime | None = columns.get("start_time")
    entry = price_map.find_entry(workspace_id, model.names, model.provider, start)
    if entry is not None:
        columns |= compute_costs(entry, columns, details)


def needs_cost(columns: Mapping[str, Any]) -> bool:
    """Whether token counts are known and costs are not."""
    has_tokens = any(
        columns.get(name) is not None for name in ("prompt_tokens", "completion_tokens")
    )
    return has_tokens and all(
        columns.get(name) is None for name in ("prompt_cost", "completion_cost", "total_cost")
    )


def compute_costs(
    entry: PriceEntry, columns: Mapping[str, Any], details: dict[str, Any]
) -> dict[str, Any]:
    """Return the cost columns; the costs by token kind are added to `details`."""
    with localcontext(prec=_DIGITS):
        result: dict[str, Any] = {"price_model_id": entry.id}
        total = Decimal(0)
        sides = (
            ("prompt", entry.prompt_cost, entry.prompt_cost_details),
            ("completion", entry.completion_cost, entry.completion_cost_details),
        )
        for side, price, prices in sides:
            tokens = columns.get(f"{side}_tokens")
            if tokens is None:
                continue
            kinds = details.get(f"{side}_token_details") or {}
            cost, by_kind = _side_cost(tokens, kinds, price, prices)
            result[f"{side}_cost"] = cost
            total += cost
            if by_kind:
                details[f"{side}_cost_details"] = {
                    kind: format(kind_cost, "f") for kind, kind_cost in by_kind.items()
                }
        result["total_cost"] = total
        return result


def _side_cost(
    tokens: int, kinds: Mapping[str, Any], price: Decimal, prices: Mapping[str, Decimal]
) -> tuple[Decimal, dict[str, Decimal]]:
    """The total cost of one side, and the costs of kinds that have their own price.

    The kinds are disjoint and part of `tokens`; the other tokens have the base price.
    """
    by_kind: dict[str, Decimal] = {}
    uncategorized = tokens
    if prices:
        named_prices = {_KIND_NAMES.get(name, name): prices[name] for name in prices}
        for kind, count in kinds.items():
            kind_price = _price_of_kind(kind, named_prices)
            if kind_price is None or not _is_count(count):
                continue
            by_kind[kind] = int(count) * kind_price
            uncategorized -= int(count)
    return sum(by_kind.values(), Decimal(0)) + max(uncategorized, 0) * price, by_kind


def _price_of_kind(kind: str, prices: Mapping[str, Decimal]) -> Decimal | None:
    """The price of the kind, of the kind without its service tier, or of the wider kind."""
    name = _KIND_NAMES.get(kind, kind)
    for candidate in (name, *(name.removeprefix(tier) for tier in _TIERS if name.startswith(tier))):
        if candidate in prices:
            return prices[candidate]
        if candidate.startswith("ephemeral_") and candidate.endswith("_input_tokens"):
            return prices.get("cache_creation")
        if candidate.startswith("cache_read_"):
            return prices.get("cache_read")
    return None


def _is_count(count: object) -> bool:
    return isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < 2**62
