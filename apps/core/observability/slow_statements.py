"""Logs slow SQL statements with their text, without the values that they are executed with."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

SLOW_SECONDS = 2.0
_MAX_CHARACTERS = 500
_STRING = re.compile(r"'(?:[^']|'')*'")

log = logging.getLogger(__name__)


def log_slow_statements(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Time the statements of a new connection; a receiver of `connection_created`."""
    if _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 -- Django's signature
    started_at = time.monotonic()
    try:
        return execute(sql, params, many, context)
    finally:
        seconds = time.monotonic() - started_at
        if seconds >= SLOW_SECONDS:
            log.warning("A statement took %.1f s: %s", seconds, _describe(sql))


def _describe(sql: object) -> str:
    text = sql if isinstance(sql, str) else type(sql).__name__
    return _STRING.sub("'…'", " ".join(text.split()))[:_MAX_CHARACTERS]
