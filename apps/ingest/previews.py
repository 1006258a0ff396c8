"""One-line previews of inputs and outputs for lists."""

from __future__ import annotations

from typing import Any

from apps.core.json import dumps
from apps.tracing.messages import find_excerpt

MAX_PREVIEW_LENGTH = 240
_TEXT_KEYS = (
    "input",
    "output",
    "question",
    "query",
    "text",
    "content",
    "answer",
    "prompt",
    "result",
)
_KNOWN_KEYS = frozenset({*_TEXT_KEYS, "messages", "kwargs"})
_EXCERPT_LENGTH = 2 * MAX_PREVIEW_LENGTH
_LONG_EXCERPT_LENGTH = 4000


def build_preview(value: Any, text: bytes | None = None) -> str | None:
    """Return the text of the last message, document or string, otherwise the start of the JSON.

    `text` is the value as JSON, if the caller has it.
    """
    if value is None or value == {}:
        return None
    excerpt = find_excerpt(value)
    if excerpt is None:
        excerpt = _find_text(value)
    if excerpt is None:
        if text is None:
            text = dumps(value)
        excerpt = text[:_LONG_EXCERPT_LENGTH].decode("utf-8", "ignore")
    return one_line(excerpt)


def one_line(text: str) -> str:
    """The start of the text on one line, without U+0000."""
    line = " ".join(text[:_EXCERPT_LENGTH].split())
    if len(line) < MAX_PREVIEW_LENGTH and len(text) > _EXCERPT_LENGTH:  # mostly whitespace
        line = " ".join(text[:_LONG_EXCERPT_LENGTH].split())
    if "\x00" in line:
        line = line.replace("\x00", "\ufffd")
    return line if len(line) <= MAX_PREVIEW_LENGTH else line[: MAX_PREVIEW_LENGTH - 1] + "…"


def _find_text(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, str):
        return value
    if depth > 4:
        return None
    if isinstance(value, dict):
        return _find_text_in_object(value, depth)
    if isinstance(value, list):
        return _find_text(value[-1], depth + 1) if value and depth else None
    return None


def _find_text_in_object(value: dict[str, Any], depth: int) -> str | None:
    if not _KNOWN_KEYS.isdisjoint(value):
        if "messages" in value:
            return _find_text(value["messages"], depth + 1)
        for key in _TEXT_KEYS:
            if isinstance(text := value.get(key), str):
                return text
        if "content" in value:
            return _find_text(value["content"], depth + 1)
        if "kwargs" in value:
            return _find_text(value["kwargs"], depth + 1)
    if len(value) == 1:
        return _find_text(next(iter(value.values())), depth + 1)
    return None
