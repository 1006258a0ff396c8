"""Regular expressions that tenants write, matched in time linear in the text (RE2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

_MAX_MEMORY = 1 << 20


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> Any:
    """Compile the pattern. Raises `ValueError` with the reason if it is invalid or too large."""
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
