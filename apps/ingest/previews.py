"""Short texts that stand for inputs and outputs in lists."""

from __future__ import annotations

from typing import Any

from apps.core.json import dumps

LENGTH = 240
_TELLING = ("input", "output", "question", "query", "text", "content", "answer", "prompt", "result")
_WORTH_A_LOOK = frozenset({*_TELLING, "messages", "kwargs"})
_CUT = 2 * LENGTH
_WIDE_CUT = 4000


def preview(value: Any, text: bytes | None = None) -> str | None:
    """What a person would want to see of the value: the last message's text, the one string.

    `text` is the value as JSON, where the caller has it: the beginning stands for all else.
    """
    if value is None or value == {}:
        return None
    found = _text(value)
    if found is None:
        if text is None:
            text = dumps(value)
        found = text[:_WIDE_CUT].decode("utf-8", "ignore")
    return one_line(found)


def one_line(text: str) -> str:
    """The beginning of the text, on one line, fit for a column."""
    line = " ".join(text[:_CUT].split())
    if len(line) < LENGTH and len(text) > _CUT:  # much of it was space
        line = " ".join(text[:_WIDE_CUT].split())
    if "\x00" in line:
        line = line.replace("\x00", "\ufffd")
    return line if len(line) <= LENGTH else line[: LENGTH - 1] + "…"


def _text(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, str):
        return value
    if depth > 4:
        return None
    if isinstance(value, dict):
        return _text_of_object(value, depth)
    if isinstance(value, list):
        return _text(value[-1], depth + 1) if value and depth else None
    return None


def _text_of_object(value: dict[str, Any], depth: int) -> str | None:
    if not _WORTH_A_LOOK.isdisjoint(value):
        if "messages" in value:
            return _text(value["messages"], depth + 1)
        for key in _TELLING:
            if isinstance(found := value.get(key), str):
                return found
        if "content" in value:
            return _text(value["content"], depth + 1)
        if "kwargs" in value:
            return _text(value["kwargs"], depth + 1)
    if len(value) == 1:
        return _text(next(iter(value.values())), depth + 1)
    return None
