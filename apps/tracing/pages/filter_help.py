"""Suggestions of the filter input."""

from __future__ import annotations

from typing import Any

from apps.trace_store.filters.fields import FIELDS, OPERATORS


def filter_suggestions() -> dict[str, Any]:
    """Return the fields, with description and operators, and the functions for `<filter-input>`."""
    return {
        "fields": [
            {"name": field.name, "about": field.about, "operators": OPERATORS[field.kind]}
            for field in FIELDS
        ],
        "calls": ["and", "or", "not", "search", "exists"],
    }
