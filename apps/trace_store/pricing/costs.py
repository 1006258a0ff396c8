"""What a model call costs: kinds of tokens that have a price of their own first, then the rest."""

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
"""Enough for any count of tokens at any price, to the last digit."""
_CACHE_WRITES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_FALLBACK_KINDS = {
    "cache_write": "cache_creation",
    "cached": "cache_read",
    "ephemeral_5m_input_tokens": "cache_creation",
    "ephemeral_1h_input_tokens": "cache_creation",
    "reasoning_tokens": "reasoning",
    "audio_tokens": "audio",
}
"""Kinds of tokens that cost what another costs, where they have no price of their own."""


@dataclass(frozen=True, slots=True)
class ModelReference:
    """How a run names its model, by the places in which the name stands, and its provider."""

    names: Mapping[str, str]
    provider: str | None


def add_costs(
    workspace_id: UUID, model: ModelReference, columns: dict[str, Any], details: dict[str, Any]
) -> None:
    """Put costs into the columns of a run by the workspace's price map.

    A cost that the client told stands, and so does one that no entry knows: nothing is added.
    """
    if not needs_cost(columns):
        return
    start: datetime | None = columns.get("start_time")
    entry = price_map.find_entry(workspace_id, model.names, model.provider, start)
    if entry is not None:
        columns |= compute_costs(entry, columns, details)


def needs_cost(columns: Mapping[str, Any]) -> bool:
    """Whether tokens are known and nobody said what they cost."""
    told = ("prompt_cost", "completion_cost", "total_cost")
    counted = ("prompt_tokens", "completion_tokens")
    return any(columns.get(name) is not None for name in counted) and all(
        columns.get(name) is None for name in told
    )


def compute_costs(
    entry: PriceEntry, columns: Mapping[str, Any], details: dict[str, Any]
) -> dict[str, Any]:
    """The columns of costs; what kinds of tokens cost goes into `details`."""
    with localcontext(prec=_DIGITS):
        found: dict[str, Any] = {"price_model_id": entry.id}
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
            found[f"{side}_cost"] = cost
            total += cost
            if by_kind:
                said = {kind: format(one, "f") for kind, one in by_kind.items()}
                details[f"{side}_cost_details"] = said
        found["total_cost"] = total
        return found


def _side_cost(
    tokens: int, kinds: Mapping[str, Any], price: Decimal, prices: Mapping[str, Decimal]
) -> tuple[Decimal, dict[str, Decimal]]:
    """What the tokens cost together, and what those kinds cost that have prices of their own."""
    by_kind: dict[str, Decimal] = {}
    rest = tokens
    for kind, count in _disjoint_counts(kinds).items():
        own = prices.get(kind)
        if own is None:
            own = prices.get(_FALLBACK_KINDS.get(kind, ""))
        if own is None:
            continue
        by_kind[kind] = count * own
        rest -= count
    # Some count what the cache served beside the tokens and not in them.
    plain = rest if rest >= 0 else tokens
    return sum(by_kind.values(), Decimal(0)) + plain * price, by_kind


def _disjoint_counts(kinds: Mapping[str, Any]) -> dict[str, int]:
    """Counts of which none contains another."""
    counts = {
        kind: int(count)
        for kind, count in kinds.items()
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < 2**62
    }
    written = sum(counts.get(kind, 0) for kind in _CACHE_WRITES)
    for whole in ("cache_creation", "cache_write"):
        if written and whole in counts:
            counts[whole] = max(counts[whole] - written, 0)
    if "cache_write" in counts and "cache_creation" in counts:
        del counts["cache_write"]
    return {kind: count for kind, count in counts.items() if count}
