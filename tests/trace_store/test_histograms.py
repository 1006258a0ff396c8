"""Merged histograms equal the histogram of all values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store.histograms import RELATIVE_ERROR, Histogram

amounts = st.lists(
    st.one_of(st.just(0.0), st.floats(min_value=1e-12, max_value=1e12)), max_size=200
)
quantiles = st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0])


def merge(*histograms: Histogram) -> Histogram:
    total = Histogram()
    for histogram in histograms:
        total.add(histogram)
    return total


@given(amounts, amounts, amounts)
def test_the_order_of_adding_does_not_matter(a, b, c):
    first, second, third = (
        Histogram.from_values(a),
        Histogram.from_values(b),
        Histogram.from_values(c),
    )

    assert merge(first, merge(second, third)) == merge(merge(first, second), third)
    assert merge(first, second) == merge(second, first)
    assert merge(first, second, third) == Histogram.from_values([*a, *b, *c])


@given(amounts.filter(bool), quantiles)
def test_a_quantile_is_within_the_relative_error(values, quantile):
    exact = sorted(values)[max(1, math.ceil(quantile * len(values))) - 1]

    estimate = Histogram.from_values(values).quantile(quantile)

    assert estimate is not None
    assert abs(estimate - exact) <= exact * RELATIVE_ERROR * 1.000001


@given(amounts)
def test_a_histogram_is_restored_from_its_bytes(values):
    histogram = Histogram.from_values(values)

    assert Histogram.from_bytes(histogram.to_bytes()) == histogram


def test_an_empty_histogram_has_no_quantile():
    assert Histogram().quantile(0.5) is None


def test_a_negative_value_counts_as_zero():
    assert Histogram.from_values([-3.0, 0.0, 5.0]).quantile(0.5) == 0.0
