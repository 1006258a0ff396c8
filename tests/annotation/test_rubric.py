"""Which items of a rubric are shown and required, by the scores that are given."""

from __future__ import annotations

import pytest

from apps.annotation.rubric import is_visible, missing_keys


def rule(op, *values, key="tone"):
    return {"key": key, "op": op, "values": list(values)}


@pytest.mark.parametrize(
    ("conditions", "scores", "expected"),
    [
        (None, {}, True),
        ([rule("is", 1)], {"tone": 1}, True),
        ([rule("is", 1)], {"tone": 0}, False),
        ([rule("is", 1)], {}, False),
        ([rule("is_one_of", 0, 1)], {"tone": 0}, True),
        ([rule("is_empty")], {}, True),
        ([rule("is_empty")], {"tone": None}, False),
        ([rule("is_not_empty")], {"tone": None}, True),
        ([rule("is", 1), rule("is_empty", key="b")], {"tone": 1, "b": 1}, False),
    ],
)
def test_conditions_show_an_item(conditions, scores, expected):
    visible_if = None if conditions is None else {"join": "all", "rules": conditions}

    assert is_visible({"visible_if": visible_if}, scores) is expected


def test_any_of_several_rules_suffices():
    item = {"visible_if": {"join": "any", "rules": [rule("is", 1), rule("is", 2)]}}

    assert is_visible(item, {"tone": 2})
    assert not is_visible(item, {"tone": 3})


def test_missing_keys_are_required_and_shown():
    rubric = [
        {"feedback_key": "tone", "is_required": True},
        {"feedback_key": "note"},
        {
            "feedback_key": "why",
            "required_if": {"join": "all", "rules": [rule("is", 0)]},
        },
        {
            "feedback_key": "hidden",
            "is_required": True,
            "visible_if": {"join": "all", "rules": [rule("is", 1)]},
        },
    ]

    assert missing_keys(rubric, {}) == ["tone"]
    assert missing_keys(rubric, {"tone": 0}) == ["why"]
    assert missing_keys(rubric, {"tone": 1}) == ["hidden"]
    assert missing_keys(rubric, {"tone": 0, "why": None}) == []
