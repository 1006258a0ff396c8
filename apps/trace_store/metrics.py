"""Mergeable metrics of sets of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec

from apps.trace_store.histograms import Histogram


class Measure(StrEnum):
    """A measured quantity of a run; the values are rollup columns and wire names."""

    LATENCY = "latency_seconds"
    FIRST_TOKEN = "first_token_seconds"  # noqa: S105  (a token of a model)
    PROMPT_TOKENS = "prompt_tokens"
    COMPLETION_TOKENS = "completion_tokens"
    TOTAL_TOKENS = "total_tokens"
    PROMPT_COST = "prompt_cost"
    COMPLETION_COST = "completion_cost"
    TOTAL_COST = "total_cost"

    @property
    def is_time(self) -> bool:
        """Stored in whole microseconds, shown in seconds."""
        return self in {Measure.LATENCY, Measure.FIRST_TOKEN}

    @property
    def is_usage(self) -> bool:
        return not self.is_time

    @property
    def is_tokens(self) -> bool:
        return self.value.endswith("_tokens")


ALL_MEASURES = tuple(Measure)
DETAILS = (
    "prompt_token_details",
    "completion_token_details",
    "prompt_cost_details",
    "completion_cost_details",
)

Details = dict[str, dict[str, Decimal]]
_MICROSECONDS = 1_000_000


class _StoredDistribution(msgspec.Struct, array_like=True):
    count: int
    total: Decimal
    least: Decimal
    most: Decimal
    bins: bytes


_decoder = msgspec.msgpack.Decoder(_StoredDistribution)


@dataclass(slots=True)
class Distribution:
    """The values of one measure: count, total, minimum, maximum and histogram."""

    count: int = 0
    total: Decimal = Decimal(0)
    least: Decimal = Decimal(0)
    most: Decimal = Decimal(0)
    histogram: Histogram = field(default_factory=Histogram)
    exact: Mapping[float, Decimal] | None = None
    """Exact quantiles, if they were computed from the values."""

    def add(self, other: Distribution) -> None:
        if not other.count:
            return
        if self.count:
            self.least = min(self.least, other.least)
            self.most = max(self.most, other.most)
        else:
            self.least, self.most = other.least, other.most
        # Exact quantiles of two sets cannot be merged.
        self.exact = other.exact if not self.count else None
        self.count += other.count
        self.total += other.total
        self.histogram.add(other.histogram)

    def quantile(self, share: float) -> Decimal | None:
        if not self.count:
            return None
        if self.exact is not None and share in self.exact:
            return self.exact[share]
        value = self.histogram.quantile(share)
        if value is None:
            return None
        return max(self.least, min(self.most, Decimal(repr(value))))

    def to_bytes(self) -> bytes | None:
        if not self.count:
            return None
        return msgspec.msgpack.encode(
            _StoredDistribution(
                self.count, self.total, self.least, self.most, self.histogram.to_bytes()
            )
        )

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Distribution:
        stored = _decoder.decode(encoded)
        return cls(
            stored.count,
            stored.total,
            stored.least,
            stored.most,
            Histogram.from_bytes(stored.bins),
        )


def decode_value_range(encoded: bytes) -> tuple[Decimal, Decimal]:
    """The minimum and maximum of an encoded distribution."""
    stored = _decoder.decode(encoded)
    return stored.least, stored.most


COUNT_NAMES = (
    *("runs", "errors", "interrupted", "cancelled", "pending"),
    *("model_calls", "streamed", "last_start"),
)
"""The first fields of `RunMetrics`, which are columns of rollups."""


@dataclass(slots=True)
class RunMetrics:
    """Metrics of a set of runs."""

    runs: int = 0
    errors: int = 0
    interrupted: int = 0
    cancelled: int = 0
    pending: int = 0
    model_calls: int = 0
    streamed: int = 0
    """Model calls with a first token time."""
    last_start: datetime | None = None
    measures: dict[Measure, Distribution] = field(default_factory=dict)
    details: Details = field(default_factory=dict)

    def add(self, other: RunMetrics) -> None:
        self.runs += other.runs
        self.errors += other.errors
        self.interrupted += other.interrupted
        self.cancelled += other.cancelled
        self.pending += other.pending
        self.model_calls += other.model_calls
        self.streamed += other.streamed
        if other.last_start is not None:
            self.last_start = max(self.last_start or other.last_start, other.last_start)
        for measure, distribution in other.measures.items():
            self.measures.setdefault(measure, Distribution()).add(distribution)
        add_details(self.details, other.details)

    def total(self, measure: Measure) -> Any:
        return to_display_value(measure, self._distribution(measure).total)

    def average(self, measure: Measure) -> float | Decimal | None:
        values = self._distribution(measure)
        if not values.count:
            return None
        if measure.is_time:
            return float(values.total) / values.count / _MICROSECONDS
        mean = values.total / values.count
        return float(mean) if measure.is_tokens else mean

    def least(self, measure: Measure) -> Any:
        values = self._distribution(measure)
        return to_display_value(measure, values.least) if values.count else None

    def most(self, measure: Measure) -> Any:
        values = self._distribution(measure)
        return to_display_value(measure, values.most) if values.count else None

    def quantile(self, measure: Measure, share: float) -> Any:
        value = self._distribution(measure).quantile(share)
        return None if value is None else to_display_value(measure, value)

    @property
    def successes(self) -> int:
        return self.runs - self.errors - self.interrupted - self.cancelled - self.pending

    @property
    def error_rate(self) -> float | None:
        return self.errors / self.runs if self.runs else None

    @property
    def streaming_rate(self) -> float | None:
        """The share of model calls that stream; None without model calls."""
        return self.streamed / self.model_calls if self.model_calls else None

    def _distribution(self, measure: Measure) -> Distribution:
        return self.measures.get(measure) or Distribution()


def to_display_value(measure: Measure, value: Decimal) -> Any:
    """Convert a stored value: times to float seconds, tokens to integers, costs unchanged."""
    if measure.is_time:
        return float(value) / _MICROSECONDS
    return round(value) if measure.is_tokens else value


def add_details(totals: Details, details: Mapping[str, Mapping[str, Decimal]]) -> None:
    """Add the details to the totals in place."""
    for kind, amounts in details.items():
        sums = totals.setdefault(kind, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, Decimal(0)) + amount


def merge_metrics(parts: Iterable[RunMetrics]) -> RunMetrics:
    total = RunMetrics()
    for metrics in parts:
        total.add(metrics)
    return total
