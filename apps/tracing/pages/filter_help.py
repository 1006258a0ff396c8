"""What the filter's field suggests while somebody types."""

from __future__ import annotations

from typing import Any

from apps.trace_store.filters.fields import FIELDS, OPERATORS


def suggestions() -> dict[str, Any]:
    """For `<filter-input>`: fields with what they are and which operators they take, and calls."""
    return {
        "fields": [
            {"name": field.name, "about": field.about, "operators": OPERATORS[field.kind]}
            for field in FIELDS
        ],
        "calls": ["and", "or", "not", "search", "exists"],
    }
