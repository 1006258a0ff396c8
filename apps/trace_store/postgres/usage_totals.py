"""Computes token and cost totals up the tree, counting each usage once.

A model call counts for itself and all its descendants. Any other run shows the total of its
descendants; its own usage counts only if no descendant has any, because runs often pass the
response of a model through, usage included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from typing import TypeVar

from apps.trace_store.types import Usage

Amount = TypeVar("Amount", int, Decimal)


@dataclass(frozen=True, slots=True)
class UsageSource:
    """A run with usage."""

    dotted_order: str
    is_model_call: bool
    usage: Usage


class UsageTotals:
    """The totals of one or more traces; sources may come in any order."""

    def __init__(self, sources: Sequence[UsageSource]) -> None:
        counted: list[UsageSource] = []
        call_prefix = None
        for source in sorted(sources, key=lambda source: source.dotted_order):
            if call_prefix is not None and source.dotted_order.startswith(call_prefix):
                continue
            counted.append(source)
            call_prefix = source.dotted_order + "." if source.is_model_call else None
        # In this order, a source has a descendant only if the next source is its descendant.
        self._sources = [
            source
            for source, successor in zip_longest(counted, counted[1:])
            if successor is None or not successor.dotted_order.startswith(source.dotted_order + ".")
        ]
        self._orders = [source.dotted_order for source in self._sources]

    def total_below(self, dotted_order: str) -> Usage | None:
        """The total usage below the run of this dotted order; None if no descendant has any."""
        # "/" follows "." in ASCII, so the range contains exactly the descendants.
        begin = bisect_left(self._orders, dotted_order + ".")
        end = bisect_left(self._orders, dotted_order + "/")
        if begin == end:
            return None
        usages = [source.usage for source in self._sources[begin:end]]
        return Usage(
            prompt_tokens=_sum([usage.prompt_tokens for usage in usages]),
            completion_tokens=_sum([usage.completion_tokens for usage in usages]),
            total_tokens=_sum([usage.total_tokens for usage in usages]),
            prompt_cost=_sum([usage.prompt_cost for usage in usages]),
            completion_cost=_sum([usage.completion_cost for usage in usages]),
            total_cost=_sum([usage.total_cost for usage in usages]),
        )


def _sum(values: Sequence[Amount | None]) -> Amount | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values[1:], known_values[0]) if known_values else None
