"""JSON as text: for editors, previews and differences."""

from __future__ import annotations

import json
from typing import Any

from apps.core.json import dumps_text


def indent_json(value: Any) -> str:
    """Return the value as indented JSON; empty for None."""
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


def one_line(value: Any) -> str:
    """Return the value on one line: a single text alone, several fields with their names."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return dumps_text(value)
    if len(value) == 1:
        [only] = value.values()
        return only if isinstance(only, str) else dumps_text(only)
    return " · ".join(
        f"{name}: {item if isinstance(item, str) else dumps_text(item)}"
        for name, item in value.items()
    )
