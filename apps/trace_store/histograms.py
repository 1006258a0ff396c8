"""Mergeable histograms with bins whose bounds grow by a constant factor.

The representative value of a bin differs from each value in it by at most `RELATIVE_ERROR`, so a
quantile of merged histograms has that relative error.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

RELATIVE_ERROR: Final = 0.01
_FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
LOG_FACTOR: Final = math.log(_FACTOR)
ZERO_BIN: Final = -32768
"""The bin of zero and negative values."""
_MIN_BIN, _MAX_BIN = -32767, 32767
_MAX_COUNT = 2**32 - 1
_ENTRY_BYTES = 6


def bin_index(value: float) -> int:
    """The bin of a value: its logarithm to the growth factor, rounded up."""
    if value <= 0:
        return ZERO_BIN
    return max(_MIN_BIN, min(_MAX_BIN, math.ceil(math.log(value) / LOG_FACTOR)))


def bin_index_sql(column: str) -> str:
    """The SQL expression of `bin_index` for a numeric column."""
    return (
        f"(CASE WHEN {column} <= 0 THEN {ZERO_BIN}"
        f" ELSE ceil(ln({column}::float8) / {LOG_FACTOR!r}) END)::int2"
    )


@dataclass(slots=True)
class Histogram:
    """The number of values in each bin."""

    bins: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_values(cls, values: Iterable[float]) -> Histogram:
        return cls.from_bins(bin_index(value) for value in values)

    @classmethod
    def from_bins(cls, bins: Iterable[int]) -> Histogram:
        return cls(dict(Counter(bins)))

    @property
    def count(self) -> int:
        return sum(self.bins.values())

    def add(self, other: Histogram) -> None:
        bins = self.bins
        for index, count in other.bins.items():
            bins[index] = bins.get(index, 0) + count

    def quantile(self, share: float) -> float | None:
        """The quantile, or None if the histogram is empty."""
        count = self.count
        if count == 0:
            return None
        rank = max(1, math.ceil(share * count))
        cumulative = 0
        for index in sorted(self.bins):
            cumulative += self.bins[index]
            if cumulative >= rank:
                return bin_value(index)
        raise AssertionError("a share is at most 1")

    def to_bytes(self) -> bytes:
        indexes = sorted(self.bins)
        counts = [min(self.bins[index], _MAX_COUNT) for index in indexes]
        return _to_little_endian(array("h", indexes)) + _to_little_endian(array("I", counts))

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Histogram:
        length = len(encoded) // _ENTRY_BYTES
        indexes, counts = array("h"), array("I")
        indexes.frombytes(encoded[: 2 * length])
        counts.frombytes(encoded[2 * length :])
        if sys.byteorder == "big":
            indexes.byteswap()
            counts.byteswap()
        return cls(dict(zip(indexes, counts, strict=True)))


def bin_value(index: int) -> float:
    """The representative value of a bin."""
    return 0.0 if index == ZERO_BIN else 2 * _FACTOR**index / (_FACTOR + 1)


def _to_little_endian(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
