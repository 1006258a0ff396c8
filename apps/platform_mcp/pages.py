"""Bounds of results: a model reads them, so they are pages of a number of characters.

Long texts within a page are shortened, and say by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.core.json import dumps_text

JSONObject = dict[str, Any]
MAX_CHARS = 30_000
DEFAULT_CHARS = 25_000
MIN_CHARS = 1_000
_LIMITS = (10_000, 2_000, 500, 150, 40)
"""Lengths of texts that are tried in turn, until a value fits."""


def bounded(value: JSONObject, max_chars: int = MAX_CHARS) -> JSONObject:
    """Return the object with texts shortened as much as its size requires.

    An object that is still too large, because it has very many members, becomes the beginning of
    its JSON in `truncated_json`.
    """
    if len(dumps_text(value)) <= max_chars:
        return value
    for limit in _LIMITS:
        short: JSONObject = shorten(value, limit)
        if len(dumps_text(short)) <= max_chars:
            return {**short, "_truncated": True}
    # A quoted character may need six.
    beginning = dumps_text(shorten(value, _LIMITS[-1]))[: max_chars // 7]
    return {"_truncated": True, "truncated_json": beginning}


def shorten(value: Any, limit: int) -> Any:
    """Return a copy whose texts have at most `limit` characters, and a count of the others."""
    if isinstance(value, str):
        rest = len(value) - limit
        return value if rest <= 0 else f"{value[:limit]}… (+{rest} chars)"
    if isinstance(value, list):
        return [shorten(member, limit) for member in value]
    if isinstance(value, dict):
        return {name: shorten(member, limit) for name, member in value.items()}
    return value


def paginate(
    items: Sequence[JSONObject], key: str, *, page_number: int, max_chars: int, preview_chars: int
) -> JSONObject:
    """Return the page of this number, from 1, with as many items as the characters allow."""
    limit = min(max_chars, MAX_CHARS)
    pages: list[list[JSONObject]] = []
    size = limit
    for item in items:
        short = bounded(shorten(item, preview_chars) if preview_chars else item, limit)
        length = len(dumps_text(short))
        if size + length > limit:
            pages.append([])
            size = 0
        pages[-1].append(short)
        size += length
    return {
        key: pages[page_number - 1] if page_number <= len(pages) else [],
        "page_number": page_number,
        "total_pages": len(pages),
        "max_chars_per_page": limit,
        "preview_chars": preview_chars,
    }
