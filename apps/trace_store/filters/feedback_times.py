"""A filter whose conditions on feedback mean only what was changed within some time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from apps.trace_store.filters.fields import BY_NAME, Items
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not, Or, Some

_MODIFIED = BY_NAME["feedback_modified_at"]


@dataclass(frozen=True, slots=True)
class Modified:
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
            case Some(items=Items.FEEDBACK):
                return replace(expression, conditions=expression.conditions + self.conditions)
        return expression


def is_on_feedback(expression: Expression | None) -> bool:
    """Whether any condition of the filter is on feedback."""
    match expression:
        case And(parts) | Or(parts):
            return any(map(is_on_feedback, parts))
        case Not(part):
            return is_on_feedback(part)
        case Some(items=Items.FEEDBACK):
            return True
    return False
