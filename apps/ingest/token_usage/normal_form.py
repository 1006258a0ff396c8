"""The normal form of token counts: disjoint kinds whose sum is the total of their side.

Providers disagree on whether a part, such as the cached tokens, is inside the reported total or
outside it. The sent totals decide: the reading whose sum is the sent total is taken. Only if none
is, the convention of the vocabulary applies, and a part that exceeds its total is outside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from apps.ingest.token_usage.vocabulary import (
    ALIASES,
    CACHE_LIFETIMES,
    CACHE_READ,
    CACHE_WRITE,
    REASONING,
)

_READINGS: Final = tuple(
    frozenset(groups)
    for groups in (
        (),
        (CACHE_READ,),
        (REASONING,),
        (CACHE_WRITE,),
        (CACHE_READ, CACHE_WRITE),
        (CACHE_READ, REASONING),
        (CACHE_WRITE, REASONING),
        (CACHE_READ, CACHE_WRITE, REASONING),
    )
)
"""Groups outside the totals; of equally good readings, the first is taken."""
CACHES: Final = frozenset({CACHE_READ, CACHE_WRITE})
_KEPT_LAST: Final = ("document", "video", "image", "audio")
"""Modalities: of overlapping kinds, plain and unknown ones are reduced before them."""


@dataclass(slots=True)
class ReportedCounts:
    """Counts as they were sent; kinds may overlap, and may be inside or outside the totals."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    input_kinds: dict[str, int] = field(default_factory=dict)
    output_kinds: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    """The cached part by modality."""
    outside: frozenset[str] = frozenset()
    """Groups that the vocabulary does not include in the totals."""
    is_rest_input: bool = False
    """Whether tokens of the total that no part explains were read: from a cache, or by tools."""

    @property
    def is_empty(self) -> bool:
        return self.input is None and self.output is None and self.total is None

    @property
    def has_rest(self) -> bool:
        """Whether the total is more than its sides."""
        return self.total is not None and self.total > (self.input or 0) + (self.output or 0)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Counts in normal form: kinds are disjoint, and plain tokens are the rest of each side."""

    input: int | None
    output: int | None
    total: int | None
    input_kinds: Mapping[str, int]
    output_kinds: Mapping[str, int]

    @property
    def plain_input(self) -> int:
        return (self.input or 0) - sum(self.input_kinds.values())

    @property
    def plain_output(self) -> int:
        return (self.output or 0) - sum(self.output_kinds.values())


def normalize(reported: ReportedCounts) -> TokenCounts:
    """Return the normal form. The order of the kinds has no effect."""
    tokens_in, tokens_out, total = reported.input, reported.output, reported.total
    kinds_in, kinds_out = reported.input_kinds, reported.output_kinds
    outside: frozenset[str] = frozenset()
    if kinds_in or kinds_out:
        kinds_in = _merge_names(kinds_in) if kinds_in else kinds_in
        kinds_out = _merge_names(kinds_out) if kinds_out else kinds_out
        if CACHE_WRITE in kinds_in:
            _separate_lifetimes(kinds_in)
        groups = _sum_groups(kinds_in, kinds_out)
        if groups:
            outside = _find_outside(tokens_in, tokens_out, total, groups, reported.outside)
        if outside:
            if tokens_in is not None:
                tokens_in += sum(groups[group] for group in outside & CACHES)
            if tokens_out is not None and REASONING in outside:
                tokens_out += groups[REASONING]
    if total is not None and (tokens_in is not None or tokens_out is not None):
        rest = total - (tokens_in or 0) - (tokens_out or 0)
        if rest > 0:
            # With the thoughts of Gemini outside the output, prompts of tools remain.
            is_input = reported.is_rest_input or REASONING in outside
            if tokens_in is None or (tokens_out is not None and is_input):
                tokens_in = (tokens_in or 0) + rest
            else:
                tokens_out = (tokens_out or 0) + rest
    if tokens_in is not None or tokens_out is not None:
        total = (tokens_in or 0) + (tokens_out or 0)
    if kinds_in and tokens_in is not None:
        _remove_overlaps(kinds_in, tokens_in, reported.cached)
    if kinds_out and tokens_out is not None:
        _remove_overlaps(kinds_out, tokens_out, {})
    return TokenCounts(tokens_in, tokens_out, total, kinds_in, kinds_out)


def _merge_names(kinds: Mapping[str, int]) -> dict[str, int]:
    """The kinds under one name each; names of the same kind report the same count."""
    if not any(name in ALIASES for name in kinds):
        return dict(kinds)
    merged: dict[str, int] = {}
    for name, count in kinds.items():
        kind = ALIASES.get(name, name)
        merged[kind] = max(count, merged.get(kind, 0))
    return merged


def _separate_lifetimes(kinds: dict[str, int]) -> None:
    """Subtract cache writes of a known lifetime from the sum of all writes."""
    known = sum(kinds.get(kind, 0) for kind in CACHE_LIFETIMES)
    kinds[CACHE_WRITE] = max(kinds[CACHE_WRITE] - known, 0)


@lru_cache(maxsize=1000)
def group_of(kind: str) -> str | None:
    """The group that is inside or outside a total as one; None for a kind that is always inside."""
    name = kind.removeprefix("priority_").removeprefix("flex_")
    if name in CACHE_LIFETIMES or name.startswith(CACHE_WRITE):
        return CACHE_WRITE
    return next((group for group in (CACHE_READ, REASONING) if name.startswith(group)), None)


def _sum_groups(kinds_in: Mapping[str, int], kinds_out: Mapping[str, int]) -> dict[str, int]:
    groups: dict[str, int] = {}
    for kind, count in kinds_in.items():
        if count and (group := group_of(kind)) in CACHES and group is not None:
            groups[group] = groups.get(group, 0) + count
    for kind, count in kinds_out.items():
        if count and group_of(kind) == REASONING:
            groups[REASONING] = groups.get(REASONING, 0) + count
    return groups


def _find_outside(
    tokens_in: int | None,
    tokens_out: int | None,
    total: int | None,
    groups: Mapping[str, int],
    convention: frozenset[str],
) -> frozenset[str]:
    """The groups that the totals do not contain."""
    cached = groups.get(CACHE_READ, 0) + groups.get(CACHE_WRITE, 0)
    exceeds_input = tokens_in is not None and cached > tokens_in
    exceeds_output = tokens_out is not None and groups.get(REASONING, 0) > tokens_out
    reading = convention & groups.keys() if convention else convention
    if total is not None and tokens_in is not None and tokens_out is not None:
        surplus = total - tokens_in - tokens_out
        if not surplus and not exceeds_input and not exceeds_output:
            return frozenset()
        matches = [
            candidate
            for candidate in _READINGS
            if candidate <= groups.keys()
            and sum(groups[group] for group in candidate) == surplus
            and _fits(candidate, groups, tokens_in, tokens_out)
        ]
        if matches:
            return reading if reading in matches else matches[0]
        remaining = surplus - sum(groups[group] for group in reading)
        if REASONING not in reading and 0 < groups.get(REASONING, 0) <= remaining:
            reading |= {REASONING}
    if exceeds_input:
        reading |= CACHES & groups.keys()
    if exceeds_output:
        reading |= {REASONING}
    return reading


def _fits(
    outside: frozenset[str], groups: Mapping[str, int], tokens_in: int, tokens_out: int
) -> bool:
    """Whether the groups that are not outside their total are at most as large."""
    inside = {group: count for group, count in groups.items() if group not in outside}
    cached = inside.get(CACHE_READ, 0) + inside.get(CACHE_WRITE, 0)
    return cached <= tokens_in and inside.get(REASONING, 0) <= tokens_out


def _remove_overlaps(kinds: dict[str, int], tokens: int, cached: Mapping[str, int]) -> None:
    """Reduce kinds that contain a part of another until the sum is at most the total."""
    for modality, count in cached.items():
        if modality in kinds:
            kinds[modality] = max(kinds[modality] - count, 0)
    excess = sum(kinds.values()) - tokens
    if excess <= 0:
        return
    for kind in sorted(kinds, key=_reduction_order):
        cut = min(excess, kinds[kind])
        kinds[kind] -= cut
        excess -= cut
        if not excess:
            return


def _reduction_order(kind: str) -> tuple[int, str]:
    """Plain text first, then unknown kinds, modalities, and the kinds of a group last."""
    if kind in {"text", "priority", "flex"}:
        return 0, kind
    if kind in _KEPT_LAST:
        return 2 + _KEPT_LAST.index(kind), kind
    return (9 if group_of(kind) else 1), kind
