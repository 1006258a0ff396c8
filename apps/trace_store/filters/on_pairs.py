"""Pairs of metadata as a filter, as requests that take no filter name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.json import dumps_text
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.parsing import parse
from apps.trace_store.filters.writing import quoted


def with_pairs(metadata: Mapping[str, Any]) -> Expression:
    """Runs that have all of these pairs; a list of values means any of them."""
    pairs = []
    for key, value in metadata.items():
        values = value if isinstance(value, list) else [value]
        listed = ", ".join(quoted(_as_text(one)) for one in values)
        pairs.append(f"and(eq(metadata_key, {quoted(key)}), in(metadata_value, [{listed}]))")
    return parse(f"and({', '.join(pairs)})")


def _as_text(value: Any) -> str:
    """As the filter language compares metadata: numbers and booleans by their JSON text."""
    return value if isinstance(value, str) else dumps_text(value)
