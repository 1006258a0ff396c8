"""Filter text split into clauses: a click adds and removes clauses and keeps the typed text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store import filters
from apps.tracing.pages import filter_clauses

ERROR = 'eq(status, "error")'
TAG = 'has(tags, "a, b)")'
PAIR = 'and(eq(metadata_key, "user"), eq(metadata_value, "u-1"))'


@pytest.mark.parametrize(
    ("text", "clauses"),
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
def test_a_conjunction_is_split_into_its_clauses(text, clauses):
    assert filter_clauses.split_clauses(text) == clauses


def test_toggling_a_clause_twice_restores_the_text():
    text = filter_clauses.toggle_clause(
        filter_clauses.toggle_clause("gt(latency, '5s')", TAG), PAIR
    )

    assert text == f"and(gt(latency, '5s'), {TAG}, {PAIR})"
    assert filter_clauses.has_clause(text, 'has(tags,   "a, b)")')
    assert (
        filter_clauses.toggle_clause(filter_clauses.toggle_clause(text, PAIR), TAG)
        == "gt(latency, '5s')"
    )


def test_values_of_a_field_are_joined_in_one_clause():
    with_first = filter_clauses.toggle_value(TAG, "name", "desk")
    with_both = filter_clauses.toggle_value(with_first, "name", 'the "other"')

    assert with_first == f'and({TAG}, eq(name, "desk"))'
    assert with_both == f'and({TAG}, in(name, ["desk", "the \\"other\\""]))'
    assert filter_clauses.selected_values(with_both, "name") == ["desk", 'the "other"']
    assert (
        filter_clauses.toggle_value(with_both, "name", "desk")
        == f'and({TAG}, eq(name, "the \\"other\\""))'
    )
    assert filter_clauses.remove_field(with_both, "name") == TAG


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True))
def test_any_toggled_values_are_read_back_from_the_filter(values):
    text = ERROR
    for value in values:
        text = filter_clauses.toggle_value(text, "name", value)

    assert filter_clauses.selected_values(text, "name") == values
    if "\x00" not in text and text.isprintable():
        assert filters.parse(text)


@given(st.text(max_size=60))
def test_any_text_is_split_without_an_error(text):
    assert isinstance(filter_clauses.split_clauses(f"and({text}"), list)
    assert isinstance(filter_clauses.selected_values(text, "name"), list)
