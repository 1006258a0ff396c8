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
from apps.trace_store.filters.text_matching import (
    MIN_PREFIX_LENGTH,
    parse_search,
    split_words,
)


def metadata_filter(metadata: Mapping[str, Any]) -> Expression:
    """Build the filter for runs with all these pairs; a list matches any of its values."""
    pairs = []
    for key, value in metadata.items():
        values = value if isinstance(value, list) else [value]
        value_list = ", ".join(quote(_as_text(item)) for item in values)
        pairs.append(f"and(eq(metadata_key, {quote(key)}), in(metadata_value, [{value_list}]))")
    return parse(f"and({', '.join(pairs)})")


def thread_filter(thread_key: str) -> Expression:
    """Build the filter for the runs of a thread."""
    return parse(f"eq(thread_id, {quote(thread_key)})")


def _as_text(value: Any) -> str:
    """The text that the filter language compares: numbers and booleans as JSON."""
    return value if isinstance(value, str) else dumps_text(value)


def quote(text: str) -> str:
    """Format the text as a literal of the filter language."""
    return json.dumps(text)


def join_filters(texts: Sequence[str]) -> str:
    """Join filters in the API's language by `and`; empty without a filter."""
    return "".join(texts) if len(texts) < 2 else f"and({', '.join(texts)})"


def search_filter(text: str) -> str:
    """Format the search for words with these beginnings; short words are whole.

    A text without a word stays as it is, so that parsing reports it.
    """
    return f"search({quote(search_words(text) or text)})"


def search_words(text: str) -> str:
    """The words of the text as a search for their beginnings; empty without a word.

    Short words are whole, unless they end with `*`.
    """
    prefixes = parse_search(text).prefixes
    return " ".join(
        f"{word}*" if len(word) >= MIN_PREFIX_LENGTH or word in prefixes else word
        for word in split_words(text)
    )


def all_of(expressions: Sequence[Expression | None]) -> Expression | None:
    """Combine the filters by `and`; None entries are ignored, and no filter gives None.

    Each filter keeps its scope: item conditions of two filters may match two items.
    """
    present = tuple(expression for expression in expressions if expression is not None)
    if len(present) < 2:
        return present[0] if present else None
    return And(present)


_MODIFIED = BY_NAME["feedback_modified_at"]


@dataclass(frozen=True, slots=True)
class FeedbackTimeRange:
    """A range of modification times of feedback: inclusive `since`, exclusive `before`."""

    since: datetime | None = None
    before: datetime | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        bounds = ((Comparison.GREATER_OR_EQUAL, self.since), (Comparison.LESS, self.before))
        return tuple(
            Condition(_MODIFIED, comparison, time)
            for comparison, time in bounds
            if time is not None
        )

    def narrow(self, expression: Expression) -> Expression:
        """Limit the feedback conditions of the filter to feedback in this range."""
        match expression:
            case And(parts):
                return And(tuple(map(self.narrow, parts)))
            case Or(parts):
                return Or(tuple(map(self.narrow, parts)))
            case Not(part):
                return Not(self.narrow(part))
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
