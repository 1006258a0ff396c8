"""Histograms whose sums answer like the sum of what went into them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store.histograms import RELATIVE_ERROR, Histogram

amounts = st.lists(
    st.one_of(st.just(0.0), st.floats(min_value=1e-12, max_value=1e12)), max_size=200
)
shares = st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0])


def merged(*parts: Histogram) -> Histogram:
    total = Histogram()
    for part in parts:
        total.add(part)
    return total


@given(amounts, amounts, amounts)
def test_the_order_of_adding_does_not_matter(a, b, c):
    one, two, three = Histogram.of(a), Histogram.of(b), Histogram.of(c)

    assert merged(one, merged(two, three)) == merged(merged(one, two), three)
    assert merged(one, two) == merged(two, one)
    assert merged(one, two, three) == Histogram.of([*a, *b, *c])


@given(amounts.filter(bool), shares)
def test_a_quantile_is_as_near_as_promised(values, share):
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]

    found = Histogram.of(values).quantile(share)

    assert found is not None
    assert abs(found - true) <= true * RELATIVE_ERROR * 1.000001


@given(amounts)
def test_what_is_stored_is_read_again(values):
    histogram = Histogram.of(values)

    assert Histogram.from_bytes(histogram.to_bytes()) == histogram


def test_nothing_has_no_quantile():
    assert Histogram().quantile(0.5) is None


def test_what_is_below_zero_counts_as_zero():
    assert Histogram.of([-3.0, 0.0, 5.0]).quantile(0.5) == 0.0
