"""Builds filters: from metadata pairs, by conjunction, and limited to recent feedback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from apps.core.json import dumps_text
from apps.trace_store.filters.fields import BY_NAME, ItemKind
from apps.trace_store.filters.nodes import And, AnyItem, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.parsing import parse


def metadata_filter(metadata: Mapping[str, Any]) -> Expression:
    """Build the filter for runs with all pairs; a list of values means any of them."""
    pairs = []
    for key, value in metadata.items():
        values = value if isinstance(value, list) else [value]
        listed = ", ".join(quote(_as_text(item)) for item in values)
        pairs.append(f"and(eq(metadata_key, {quote(key)}), in(metadata_value, [{listed}]))")
    return parse(f"and({', '.join(pairs)})")


def _as_text(value: Any) -> str:
    """The text that the filter language compares: numbers and booleans as JSON."""
    return value if isinstance(value, str) else dumps_text(value)


def quote(text: str) -> str:
    """Format the text as a literal of the filter language."""
    return json.dumps(text)


def all_of(expressions: Sequence[Expression | None]) -> Expression | None:
    """Combine the filters by `and`; None entries are ignored, and no filter gives None.

    Each filter keeps its scope: item conditions of two filters may match two items.
    """
    given = tuple(expression for expression in expressions if expression is not None)
    if len(given) < 2:
        return given[0] if given else None
    return And(given)


_MODIFIED = BY_NAME["feedback_modified_at"]


@dataclass(frozen=True, slots=True)
class FeedbackTimeRange:
    """A range of modification times of feedback: inclusive `since`, exclusive `before`."""

    since: datetime | None = None
    before: datetime | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        bounds = ((Comparison.GREATER_OR_EQUAL, self.since), (Comparison.LESS, self.before))
        return tuple(Condition(_MODIFIED, how, when) for how, when in bounds if when is not None)

    def narrowed(self, expression: Expression) -> Expression:
        """Limit the feedback conditions of the filter to feedback in this range."""
        match expression:
            case And(parts):
                return And(tuple(map(self.narrowed, parts)))
            case Or(parts):
                return Or(tuple(map(self.narrowed, parts)))
            case Not(part):
                return Not(self.narrowed(part))
            case AnyItem(items=ItemKind.FEEDBACK):
                return replace(expression, conditions=expression.conditions + self.conditions)
        return expression


def has_feedback_condition(expression: Expression | None) -> bool:
    """Whether the filter has a feedback condition."""
    match expression:
        case And(parts) | Or(parts):
            return any(map(has_feedback_condition, parts))
        case Not(part):
            return has_feedback_condition(part)
        case AnyItem(items=ItemKind.FEEDBACK):
            return True
    return False
