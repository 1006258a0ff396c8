"""The normal form of token counts, and the vocabulary of their names."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.linear_regex import compile_pattern
from apps.ingest.token_usage import read_usage, usage_columns
from apps.ingest.token_usage.normal_form import CACHES, ReportedCounts, group_of, normalize
from apps.ingest.token_usage.vocabulary import (
    ATTRIBUTE_RULES,
    OUTPUT_RULES,
    VOCABULARIES,
    find_unread_attributes,
)
from apps.trace_store.pricing.costs import compute_costs
from apps.trace_store.pricing.entries import PriceEntry
from tests.examples import fuzz_settings

PROPERTY_SETTINGS = fuzz_settings(200)
GROUPS = ("cache_read", "cache_creation", "reasoning")
INPUT_KINDS = (
    *("cache_read", "cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"),
    *("audio", "image", "text", "priority", "priority_cache_read", "custom"),
)
OUTPUT_KINDS = ("reasoning", "audio", "text", "custom")
# Small counts make equal sums, and thus readings that contradict each other, frequent.
COUNT = st.integers(0, 12) | st.integers(0, 10**9)
PRICE = st.integers(1, 50).map(Decimal)


def input_prices(kinds: tuple[str, ...]) -> st.SearchStrategy[dict[str, Decimal]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(kinds, PRICE))


@st.composite
def reported_counts(draw: st.DrawFn) -> ReportedCounts:
    kinds_in = draw(st.dictionaries(st.sampled_from(INPUT_KINDS), COUNT, max_size=5))
    kinds_out = draw(st.dictionaries(st.sampled_from(OUTPUT_KINDS), COUNT, max_size=3))
    tokens_in, tokens_out = draw(COUNT), draw(COUNT)
    groups = sum_groups(kinds_in, kinds_out)
    beside = draw(st.sets(st.sampled_from(GROUPS)))
    surplus = sum(groups.get(group, 0) for group in beside)
    total = draw(st.none() | st.just(tokens_in + tokens_out + surplus) | COUNT)
    return ReportedCounts(
        input=draw(st.just(tokens_in) | st.none()),
        output=draw(st.just(tokens_out) | st.none()),
        total=total,
        input_kinds=kinds_in,
        output_kinds=kinds_out,
        cached=draw(st.dictionaries(st.sampled_from(["audio", "image"]), COUNT, max_size=2)),
        outside=frozenset(draw(st.sets(st.sampled_from(GROUPS)))),
        is_rest_input=draw(st.booleans()),
    )


def separate_writes(kinds: dict[str, int]) -> dict[str, int]:
    """The kinds, with all cache writes less those of a known lifetime."""
    known = kinds.get("ephemeral_5m_input_tokens", 0) + kinds.get("ephemeral_1h_input_tokens", 0)
    return {
        kind: max(count - known, 0) if kind == "cache_creation" else count
        for kind, count in kinds.items()
    }


def sum_groups(kinds_in: dict[str, int], kinds_out: dict[str, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for kind, count in separate_writes(kinds_in).items():
        if (group := group_of(kind)) in CACHES:
            sums[group] = sums.get(group, 0) + count
    if kinds_out.get("reasoning"):
        sums["reasoning"] = kinds_out["reasoning"]
    return sums


def copy_of(reported: ReportedCounts, *, is_reversed: bool = False) -> ReportedCounts:
    step = -1 if is_reversed else 1
    return ReportedCounts(
        reported.input,
        reported.output,
        reported.total,
        dict(list(reported.input_kinds.items())[::step]),
        dict(list(reported.output_kinds.items())[::step]),
        dict(list(reported.cached.items())[::step]),
        reported.outside,
        reported.is_rest_input,
    )


def build_entry(
    base: tuple[Decimal, Decimal], prices_in: dict[str, Decimal], prices_out: dict[str, Decimal]
) -> PriceEntry:
    return PriceEntry(
        id=UUID(int=1),
        name="m",
        pattern=compile_pattern("m"),
        match_path=("model",),
        provider=None,
        start_time=None,
        prompt_cost=base[0],
        completion_cost=base[1],
        prompt_cost_details=prices_in,
        completion_cost_details=prices_out,
        match_pattern="m",
    )


def kind_price(kind: str, prices: dict[str, Decimal]) -> Decimal | None:
    """An independent statement of the rule by which a kind has a price."""
    wider = {
        "ephemeral_5m_input_tokens": "cache_creation",
        "ephemeral_1h_input_tokens": "cache_creation",
        "priority_cache_read": "cache_read",
    }
    return prices.get(kind, prices.get(wider.get(kind, "")))


def bounds_of_side(
    tokens: int, kinds: dict[str, int], base: Decimal, prices: dict[str, Decimal]
) -> tuple[Decimal, Decimal]:
    """The cheapest and the dearest cost of `tokens`, each of them charged once."""
    bounds = []
    for sign in (1, -1):
        priced = sorted(
            (
                (sign * price, count)
                for kind, count in kinds.items()
                if (price := kind_price(kind, prices)) is not None
            )
        )
        cost, remaining = Decimal(0), tokens
        for signed_price, count in priced:
            if signed_price < sign * base:
                used = min(count, remaining)
                cost += used * sign * signed_price
                remaining -= used
        bounds.append(cost + remaining * base)
    return bounds[0], bounds[1]


def bounds_of_readings(reported: ReportedCounts, entry: PriceEntry) -> tuple[Decimal, Decimal]:
    """The cheapest and the dearest cost over every reading of the counts."""
    kinds_in = separate_writes(reported.input_kinds)
    groups = sum_groups(reported.input_kinds, reported.output_kinds)
    costs: list[Decimal] = []
    for size in range(len(groups) + 1):
        for beside in combinations(groups, size):
            tokens_in = (reported.input or 0) + sum(
                groups[group] for group in beside if group in CACHES
            )
            tokens_out = (reported.output or 0) + (
                groups["reasoning"] if "reasoning" in beside else 0
            )
            rest = max((reported.total or 0) - tokens_in - tokens_out, 0)
            for rest_in, rest_out in ((rest, 0), (0, rest)):
                low_in, high_in = bounds_of_side(
                    tokens_in + rest_in,
                    kinds_in,
                    entry.prompt_cost,
                    dict(entry.prompt_cost_details),
                )
                low_out, high_out = bounds_of_side(
                    tokens_out + rest_out,
                    reported.output_kinds,
                    entry.completion_cost,
                    dict(entry.completion_cost_details),
                )
                costs += [low_in + low_out, high_in + high_out]
    return min(costs), max(costs)


@PROPERTY_SETTINGS
@given(reported_counts())
def test_kinds_are_disjoint_and_sum_to_the_totals(reported: ReportedCounts) -> None:
    counts = normalize(copy_of(reported))

    for tokens, kinds, plain in (
        (counts.input, counts.input_kinds, counts.plain_input),
        (counts.output, counts.output_kinds, counts.plain_output),
    ):
        assert all(count >= 0 for count in kinds.values())
        if tokens is not None:
            assert plain >= 0
            assert plain + sum(kinds.values()) == tokens
    if counts.input is not None or counts.output is not None:
        assert counts.total == (counts.input or 0) + (counts.output or 0)
        assert counts.total >= (reported.input or 0) + (reported.output or 0)
        assert counts.total >= (reported.total or 0) or reported.total is None


@PROPERTY_SETTINGS
@given(reported_counts())
def test_a_total_that_a_reading_explains_is_kept(reported: ReportedCounts) -> None:
    counts = normalize(copy_of(reported))

    groups = sum_groups(reported.input_kinds, reported.output_kinds)
    is_exceeded = sum(groups.get(group, 0) for group in CACHES) > (
        reported.input or 0
    ) or groups.get("reasoning", 0) > (reported.output or 0)
    is_known = None not in {reported.input, reported.output, reported.total}
    if is_known and not is_exceeded:
        assert (
            counts.total == max(reported.total or 0, (reported.input or 0) + (reported.output or 0))
            or reported.outside
        )


@PROPERTY_SETTINGS
@given(reported_counts())
def test_the_order_of_the_fields_has_no_effect(reported: ReportedCounts) -> None:
    first = normalize(copy_of(reported))
    second = normalize(copy_of(reported, is_reversed=True))

    assert first == second


@PROPERTY_SETTINGS
@given(
    reported_counts(),
    st.tuples(PRICE, PRICE),
    input_prices(INPUT_KINDS),
    input_prices(OUTPUT_KINDS),
)
def test_the_cost_lies_between_the_cheapest_and_the_dearest_reading(
    reported: ReportedCounts,
    base: tuple[Decimal, Decimal],
    prices_in: dict[str, Decimal],
    prices_out: dict[str, Decimal],
) -> None:
    counts = normalize(copy_of(reported))
    entry = build_entry(base, prices_in, prices_out)
    columns = {"prompt_tokens": counts.input, "completion_tokens": counts.output}
    details: dict[str, Any] = {
        "prompt_token_details": counts.input_kinds,
        "completion_token_details": counts.output_kinds,
    }

    cost = compute_costs(entry, columns, details)["total_cost"]

    if counts.input is not None or counts.output is not None:
        low, high = bounds_of_readings(reported, entry)
        assert low <= cost <= high


@PROPERTY_SETTINGS
@given(
    st.dictionaries(st.sampled_from(sorted(OUTPUT_RULES)), st.integers(0, 1000), min_size=1),
    st.randoms(use_true_random=False),
)
def test_the_order_of_names_in_outputs_has_no_effect(values: dict[str, int], random: Any) -> None:
    def nest(names: list[str]) -> dict[str, Any]:
        usage: dict[str, Any] = {}
        for path in names:
            *parents, name = path.split(".")
            node = usage
            for parent in parents:
                inner = node.get(parent)
                node[parent] = inner if isinstance(inner, dict) else {}
                node = node[parent]
            if not isinstance(node.get(name), dict):
                node[name] = values[path]
        return usage

    names = sorted(values, key=lambda path: (path.count("."), path), reverse=True)
    usage = nest(names)
    shuffled = list(usage.items())
    random.shuffle(shuffled)

    assert usage_columns("llm", {"usage": dict(shuffled)}, None) == usage_columns(
        "llm", {"usage": usage}, None
    )


def test_every_row_names_its_source() -> None:
    assert all(vocabulary.source and vocabulary.names for vocabulary in VOCABULARIES)
    assert len({vocabulary.source for vocabulary in VOCABULARIES}) == len(VOCABULARIES)
    assert all(rule.vocabulary in VOCABULARIES for rule in ATTRIBUTE_RULES.values())


@pytest.mark.parametrize(
    ("name", "is_unread"),
    [
        ("gen_ai.usage.dream_tokens", True),
        ("gen_ai.usage.dream.input_tokens", True),
        ("llm.token_count.prompt_details.dream", True),
        ("ai.usage.outputTokenDetails.dreamTokens", True),
        ("gen_ai.usage.input_tokens", False),
        ("gen_ai.usage.experimental.reasoning_tokens_limit", False),
        ("gen_ai.request.max_tokens", False),
        ("gen_ai.aggregated_usage.input_tokens", False),
        ("gen_ai.monitor.memory_usage", False),
        ("langsmith.metadata.user_token", False),
        ("server.port", False),
    ],
)
def test_an_attribute_without_a_row_is_unread_if_it_looks_like_a_count(
    name: str, *, is_unread: bool
) -> None:
    assert find_unread_attributes({name: 5}) == ((name,) if is_unread else ())
    assert find_unread_attributes({name: "text"}) == ()


def test_a_name_of_a_usage_object_without_a_row_is_unread() -> None:
    usage = {"prompt_tokens": 5, "dream_tokens": 7, "inner": {"dream_tokens": 1}, "prompt_time": 2}

    reported = read_usage("llm", {"usage": usage}, None)

    assert reported is not None
    assert reported.unread == ["dream_tokens", "inner.dream_tokens"]
    assert reported.to_columns() == {"prompt_tokens": 5, "total_tokens": 5}
