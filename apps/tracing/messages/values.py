"""Reads single values of recorded JSON, which may be anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from apps.core.json import dumps_text, loads

MAX_JSON_DEPTH_NOTE = "(nested too deeply)"


def as_text(value: Any) -> str:
    """Return a string unchanged, None as empty, and any other value as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Return compact JSON; a note for values that are nested too deeply to encode."""
    try:
        return dumps_text(value)
    except (RecursionError, TypeError, ValueError):
        # orjson refuses lone surrogates, which the standard library's parser lets through.
        try:
            return json.dumps(value, separators=(",", ":"), default=str)
        except (RecursionError, TypeError, ValueError):
            return MAX_JSON_DEPTH_NOTE


def decoded(value: Any) -> Any:
    """Return the value of JSON text; any other value unchanged."""
    if isinstance(value, str):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def storable_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def string(value: Any) -> str:
    """Return a string unchanged and any other value as empty."""
    return value if isinstance(value, str) else ""


def first_string(fields: dict[str, Any], keys: Iterable[str]) -> str:
    """Return the first value of the keys that is a string with content."""
    for key in keys:
        if isinstance(value := fields.get(key), str) and value:
            return value
    return ""


def first_present(fields: dict[str, Any], keys: Iterable[str]) -> Any:
    """Return the first value of the keys that is not None."""
    for key in keys:
        if (value := fields.get(key)) is not None:
            return value
    return None


def only_dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
