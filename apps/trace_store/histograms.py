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
    def of(cls, values: Iterable[float]) -> Histogram:
        return cls.of_bins(bin_index(value) for value in values)

    @classmethod
    def of_bins(cls, bins: Iterable[int]) -> Histogram:
        return cls(dict(Counter(bins)))

    @property
    def count(self) -> int:
        return sum(self.bins.values())

    def add(self, other: Histogram) -> None:
        bins = self.bins
        for place, count in other.bins.items():
            bins[place] = bins.get(place, 0) + count

    def quantile(self, share: float) -> float | None:
        """The quantile, or None if the histogram is empty."""
        count = self.count
        if count == 0:
            return None
        rank = max(1, math.ceil(share * count))
        seen = 0
        for place in sorted(self.bins):
            seen += self.bins[place]
            if seen >= rank:
                return _bin_value(place)
        raise AssertionError("a share is at most 1")

    def to_bytes(self) -> bytes:
        places = sorted(self.bins)
        counts = [min(self.bins[place], _MAX_COUNT) for place in places]
        return _to_little_endian(array("h", places)) + _to_little_endian(array("I", counts))

    @classmethod
    def from_bytes(cls, text: bytes) -> Histogram:
        length = len(text) // _ENTRY_BYTES
        places, counts = array("h"), array("I")
        places.frombytes(text[: 2 * length])
        counts.frombytes(text[2 * length :])
        if sys.byteorder == "big":
            places.byteswap()
            counts.byteswap()
        return cls(dict(zip(places, counts, strict=True)))


def _bin_value(place: int) -> float:
    return 0.0 if place == ZERO_BIN else 2 * _FACTOR**place / (_FACTOR + 1)


def _to_little_endian(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
