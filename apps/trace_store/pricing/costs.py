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
_CACHE_WRITES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_FALLBACK_KINDS = {
    "cache_write": "cache_creation",
    "cached": "cache_read",
    "ephemeral_5m_input_tokens": "cache_creation",
    "ephemeral_1h_input_tokens": "cache_creation",
    "reasoning_tokens": "reasoning",
    "audio_tokens": "audio",
}
"""Token kinds that fall back to the price of another kind."""


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
    """The total cost of one side, and the costs of kinds that have their own price."""
    by_kind: dict[str, Decimal] = {}
    uncategorized = tokens
    for kind, count in _disjoint_counts(kinds).items():
        kind_price = prices.get(kind)
        if kind_price is None:
            kind_price = prices.get(_FALLBACK_KINDS.get(kind, ""))
        if kind_price is None:
            continue
        by_kind[kind] = count * kind_price
        uncategorized -= count
    # Some providers do not include cached tokens in the token count.
    default_priced = uncategorized if uncategorized >= 0 else tokens
    return sum(by_kind.values(), Decimal(0)) + default_priced * price, by_kind


def _disjoint_counts(kinds: Mapping[str, Any]) -> dict[str, int]:
    """The counts without overlap: cache writes are subtracted from cache creation."""
    counts = {
        kind: int(count)
        for kind, count in kinds.items()
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < 2**62
    }
    cache_writes = sum(counts.get(kind, 0) for kind in _CACHE_WRITES)
    for total_kind in ("cache_creation", "cache_write"):
        if cache_writes and total_kind in counts:
            counts[total_kind] = max(counts[total_kind] - cache_writes, 0)
    if "cache_write" in counts and "cache_creation" in counts:
        del counts["cache_write"]
    return {kind: count for kind, count in counts.items() if count}
