"""Values of JSON as Python code, for snippets."""

from __future__ import annotations

import json
from typing import Any


def python_literal(value: Any) -> str:
    """Return the value of JSON as an expression, with double quotes as in the code around it."""
    if isinstance(value, dict):
        pairs = (f"{python_literal(key)}: {python_literal(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(python_literal, value))}]"
    if isinstance(value, str):
        # An escape of JSON, but for surrogate pairs, means the same in Python.
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
