"""Pairs of metadata as a filter, as requests that take no filter name them."""

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
    """Runs that have all of these pairs; a list of values means any of them."""
    pairs = []
    for key, value in metadata.items():
        values = value if isinstance(value, list) else [value]
        listed = ", ".join(quote(_as_text(one)) for one in values)
        pairs.append(f"and(eq(metadata_key, {quote(key)}), in(metadata_value, [{listed}]))")
    return parse(f"and({', '.join(pairs)})")


def _as_text(value: Any) -> str:
    """As the filter language compares metadata: numbers and booleans by their JSON text."""
    return value if isinstance(value, str) else dumps_text(value)


def quote(text: str) -> str:
    """The text as a literal of the filter language."""
    return json.dumps(text)


def all_of(expressions: Sequence[Expression | None]) -> Expression | None:
    """What is true when all of these are; None does not limit, and of nothing is None.

    Each keeps its own scope: conditions on pairs of two expressions may mean two pairs.
    """
    given = tuple(one for one in expressions if one is not None)
    if len(given) < 2:
        return given[0] if given else None
    return And(given)


_MODIFIED = BY_NAME["feedback_modified_at"]


@dataclass(frozen=True, slots=True)
class FeedbackTimeRange:
    """When feedback was changed last: then or later, and before then; None does not limit."""

    since: datetime | None = None
    before: datetime | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        bounds = ((Comparison.AT_LEAST, self.since), (Comparison.LESS, self.before))
        return tuple(Condition(_MODIFIED, how, when) for how, when in bounds if when is not None)

    def narrowed(self, expression: Expression) -> Expression:
        """The filter, of other feedback as if it were not there."""
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
    """Whether any condition of the filter is on feedback."""
    match expression:
        case And(parts) | Or(parts):
            return any(map(has_feedback_condition, parts))
        case Not(part):
            return has_feedback_condition(part)
        case AnyItem(items=ItemKind.FEEDBACK):
            return True
    return False
