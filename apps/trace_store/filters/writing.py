"""Making the text of a filter, for those who offer one: facets, groups, links."""

from __future__ import annotations

import json
from collections.abc import Sequence

from apps.trace_store.filters.nodes import And, Expression


def quoted(text: str) -> str:
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
