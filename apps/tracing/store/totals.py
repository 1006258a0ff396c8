"""Tokens and costs of a run that has none of its own: those of the runs below it.

A run with usage of its own speaks for everything below it too, so nothing is counted twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from apps.tracing.store.types import Usage

N = TypeVar("N", int, Decimal)


@dataclass(frozen=True, slots=True)
class Source:
    """A run with usage of its own."""

    dotted_order: str
    usage: Usage


class Totals:
    """The sums of a trace, or of several; sources may come in any order."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources: list[Source] = []
        above = None
        for source in sorted(sources, key=lambda one: one.dotted_order):
            if above is not None and source.dotted_order.startswith(above):
                continue
            self._sources.append(source)
            above = source.dotted_order + "."
        self._orders = [source.dotted_order for source in self._sources]

    def below(self, dotted_order: str) -> Usage:
        """The usage of all runs below the run of that dotted order."""
        # "/" is the character after ".", so the two ends hold exactly the descendants.
        begin = bisect_left(self._orders, dotted_order + ".")
        end = bisect_left(self._orders, dotted_order + "/")
        usages = [source.usage for source in self._sources[begin:end]]
        return Usage(
            prompt_tokens=_sum([usage.prompt_tokens for usage in usages]),
            completion_tokens=_sum([usage.completion_tokens for usage in usages]),
            total_tokens=_sum([usage.total_tokens for usage in usages]),
            prompt_cost=_sum([usage.prompt_cost for usage in usages]),
            completion_cost=_sum([usage.completion_cost for usage in usages]),
            total_cost=_sum([usage.total_cost for usage in usages]),
        )


def _sum(values: Sequence[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
