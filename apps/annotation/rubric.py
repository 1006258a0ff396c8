"""The rubric of a queue: the feedback keys that reviewers fill in, and when they are due.

A rubric item is an object with the fields of `RubricItem`; conditions are rules on the scores of
earlier items.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from apps.annotation.errors import BadRubric
from apps.core.json import dumps
from apps.core.linear_regex import compile_pattern
from apps.feedback.models import KEY_LENGTH, FeedbackConfig

MAX_ITEMS = 50
MAX_RULES = 20
MAX_PATTERN_LENGTH = 500
MAX_TEXT_LENGTH = 5000
MAX_DESCRIPTIONS = 500
MAX_BYTES = 1_048_576
"""Of a rubric as JSON."""


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """A condition on the score of an earlier item."""

    key: str
    op: Literal["is", "is_one_of", "is_empty", "is_not_empty"]
    values: list[float] = []


class Conditions(msgspec.Struct, forbid_unknown_fields=True):
    join: Literal["all", "any"]
    rules: list[Rule]


class RubricItem(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A feedback key to fill in. `feedback_config` is read-only: requests may repeat it."""

    feedback_key: str
    description: str | None = None
    value_descriptions: dict[str, str] | None = None
    score_descriptions: dict[str, str] | None = None
    is_required: bool | None = None
    is_assertion: bool | None = None
    regex_validator: str | None = None
    required_if: Conditions | UnsetType | None = UNSET
    visible_if: Conditions | UnsetType | None = UNSET
    feedback_config_id: UUID | None = None
    feedback_config: Any = None


def parse_rubric(
    items: Sequence[RubricItem],
    configs: Mapping[str, FeedbackConfig],
    current: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the items as they are stored; raises `BadRubric` with the field.

    `configs` are those of the keys; `current` is the present rubric, whose conditions stay where
    an item does not give them.
    """
    current_items = {item["feedback_key"]: item for item in current}
    stored: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        earlier = {previous["feedback_key"] for previous in stored}
        before = current_items.get(item.feedback_key, {})
        try:
            stored.append(_parse_item(item, earlier, before, configs.get(item.feedback_key)))
        except ValueError as error:
            raise BadRubric(f"`rubric_items[{number}].{error}") from None
    if len(dumps(stored)) > MAX_BYTES:
        raise BadRubric(f"`rubric_items` may have at most {MAX_BYTES:,} bytes.")
    return stored


def check_count(items: Sequence[RubricItem]) -> None:
    """Raise `BadRubric` for more items than a rubric may have."""
    if len(items) > MAX_ITEMS:
        raise BadRubric(f"`rubric_items` may have at most {MAX_ITEMS} items.")


def _parse_item(
    item: RubricItem,
    earlier: Collection[str],
    before: Mapping[str, Any],
    config: FeedbackConfig | None,
) -> dict[str, Any]:
    """Return the stored item. Raises `ValueError` with the rest of the message."""
    key = item.feedback_key
    if not 0 < len(key) <= KEY_LENGTH or "\x00" in key:
        raise ValueError(f"feedback_key` must have 1 to {KEY_LENGTH} characters.")
    if key in earlier:
        raise ValueError("feedback_key` is that of another item.")
    if item.feedback_config_id is not None and (
        config is None or config.pk != item.feedback_config_id
    ):
        raise ValueError("feedback_config_id` is not the config of this key.")
    if item.regex_validator is not None:
        _check_pattern(item.regex_validator)
    return {
        "feedback_key": key,
        "description": _text(item.description, "description"),
        "value_descriptions": _texts(item.value_descriptions, "value_descriptions"),
        "score_descriptions": _texts(item.score_descriptions, "score_descriptions"),
        "is_required": bool(item.is_required),
        "is_assertion": bool(item.is_assertion),
        "regex_validator": item.regex_validator,
        "required_if": _conditions(item.required_if, "required_if", earlier, before),
        "visible_if": _conditions(item.visible_if, "visible_if", earlier, before),
    }


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_LENGTH or "\x00" in pattern:
        raise ValueError(f"regex_validator` must have at most {MAX_PATTERN_LENGTH} characters.")
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise ValueError(f"regex_validator` cannot be used: {error}") from None


def _text(value: str | None, field: str) -> str | None:
    if value is not None and len(value) > MAX_TEXT_LENGTH:
        raise ValueError(f"{field}` must have at most {MAX_TEXT_LENGTH} characters.")
    return value and value.replace("\x00", "\ufffd")


def _texts(values: dict[str, str] | None, field: str) -> dict[str, str] | None:
    if values is None:
        return None
    if len(values) > MAX_DESCRIPTIONS:
        raise ValueError(f"{field}` may have at most {MAX_DESCRIPTIONS} entries.")
    return {str(_text(name, field)): str(_text(text, field)) for name, text in values.items()}


def _conditions(
    value: Conditions | UnsetType | None,
    field: str,
    earlier: Collection[str],
    before: Mapping[str, Any],
) -> Any:
    if value is UNSET:
        kept = before.get(field)
        rules = kept["rules"] if kept else ()
        # A rule on a key that is not above any more would never hold.
        return kept if all(rule["key"] in earlier for rule in rules) else None
    if value is None:
        return None
    if not 0 < len(value.rules) <= MAX_RULES:
        raise ValueError(f"{field}` must have 1 to {MAX_RULES} rules.")
    for rule in value.rules:
        if rule.key not in earlier:
            raise ValueError(f"{field}` must name keys of earlier items.")
        if (rule.op in {"is", "is_one_of"}) != bool(rule.values) or len(rule.values) > MAX_RULES:
            raise ValueError(f"{field}` needs 1 to {MAX_RULES} values for `is` and `is_one_of`.")
        if not all(abs(number) <= 1e300 for number in rule.values):
            raise ValueError(f"{field}` has a value that is not a finite number.")
    return msgspec.to_builtins(value)


def is_visible(item: Mapping[str, Any], scores: Mapping[str, float | None]) -> bool:
    """Whether the item is shown; `scores` are those given so far, None for another result."""
    conditions = item.get("visible_if")
    return conditions is None or _holds(conditions, scores)


def is_required(item: Mapping[str, Any], scores: Mapping[str, float | None]) -> bool:
    """Whether a review needs the item."""
    if not is_visible(item, scores):
        return False
    conditions = item.get("required_if")
    return bool(item.get("is_required")) or (conditions is not None and _holds(conditions, scores))


def _holds(conditions: Mapping[str, Any], scores: Mapping[str, float | None]) -> bool:
    join = all if conditions["join"] == "all" else any
    return join(_rule_holds(rule, scores) for rule in conditions["rules"])


def _rule_holds(rule: Mapping[str, Any], scores: Mapping[str, float | None]) -> bool:
    if rule["op"] == "is_empty":
        return rule["key"] not in scores
    if rule["op"] == "is_not_empty":
        return rule["key"] in scores
    return scores.get(rule["key"]) in rule["values"]


def missing_keys(
    items: Sequence[Mapping[str, Any]], scores: Mapping[str, float | None]
) -> list[str]:
    """Return the keys that a review needs and that have no feedback, in the rubric's order."""
    return [
        item["feedback_key"]
        for item in items
        if item["feedback_key"] not in scores and is_required(item, scores)
    ]
