"""A filter's text as clauses: what a click adds and removes, and what stays as it was typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store import filters
from apps.tracing.pages import filter_clauses

ERROR = 'eq(status, "error")'
TAG = 'has(tags, "a, b)")'
PAIR = 'and(eq(metadata_key, "user"), eq(metadata_value, "u-1"))'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (ERROR, [ERROR]),
        (f"and({ERROR}, {TAG})", [ERROR, TAG]),
        (f"and( {ERROR} ,\n{PAIR} )", [ERROR, PAIR]),
        (PAIR, [PAIR]),
        (f"or({ERROR}, {TAG})", [f"or({ERROR}, {TAG})"]),
        ("and(broken", ["and(broken"]),
        (f"and({ERROR}) or more", [f"and({ERROR}) or more"]),
    ],
)
def test_what_an_and_joins_are_its_clauses(text, found):
    assert filter_clauses.split_clauses(text) == found


def test_a_clause_goes_as_it_came():
    text = filter_clauses.toggle_clause(
        filter_clauses.toggle_clause("gt(latency, '5s')", TAG), PAIR
    )

    assert text == f"and(gt(latency, '5s'), {TAG}, {PAIR})"
    assert filter_clauses.has_clause(text, 'has(tags,   "a, b)")')
    assert (
        filter_clauses.toggle_clause(filter_clauses.toggle_clause(text, PAIR), TAG)
        == "gt(latency, '5s')"
    )


def test_values_of_a_field_come_together():
    one = filter_clauses.toggle_value(TAG, "name", "desk")
    two = filter_clauses.toggle_value(one, "name", 'the "other"')

    assert one == f'and({TAG}, eq(name, "desk"))'
    assert two == f'and({TAG}, in(name, ["desk", "the \\"other\\""]))'
    assert filter_clauses.chosen_values(two, "name") == ["desk", 'the "other"']
    assert (
        filter_clauses.toggle_value(two, "name", "desk")
        == f'and({TAG}, eq(name, "the \\"other\\""))'
    )
    assert filter_clauses.remove_field(two, "name") == TAG


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True))
def test_whatever_the_values_the_text_is_one_filter_and_gives_them_back(values):
    text = ERROR
    for value in values:
        text = filter_clauses.toggle_value(text, "name", value)

    assert filter_clauses.chosen_values(text, "name") == values
    if "\x00" not in text and text.isprintable():
        assert filters.parse(text)


@given(st.text(max_size=60))
def test_no_text_is_too_strange_to_be_split(text):
    assert isinstance(filter_clauses.split_clauses(f"and({text}"), list)
    assert isinstance(filter_clauses.chosen_values(text, "name"), list)
