"""Short texts that stand for inputs and outputs in lists."""

from __future__ import annotations

from typing import Any

from apps.core.json import dumps

LENGTH = 240
_TELLING = ("input", "output", "question", "query", "text", "content", "answer", "prompt", "result")
_CUT = 4 * LENGTH


def preview(value: Any) -> str | None:
    """What a person would want to see of the value: the last message's text, the one string."""
    if value is None or value == {}:
        return None
    text = _text(value)
    if text is None:
        text = dumps(_cut(value)).decode()
    return one_line(text)


def one_line(text: str) -> str:
    """The beginning of the text, on one line, fit for a column."""
    line = " ".join(text[:_CUT].split())
    line = line.replace("\x00", "\ufffd")
    return line if len(line) <= LENGTH else line[: LENGTH - 1] + "…"


def _text(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, str):
        return value
    if depth > 4:
        return None
    if isinstance(value, list):
        return _text(value[-1], depth + 1) if value and depth else None
    if not isinstance(value, dict):
        return None
    if "messages" in value:
        return _text(value["messages"], depth + 1)
    for key in _TELLING:
        if isinstance(value.get(key), str):
            return str(value[key])
    if "content" in value:
        return _text(value["content"], depth + 1)
    if "kwargs" in value:
        return _text(value["kwargs"], depth + 1)
    if len(value) == 1:
        return _text(next(iter(value.values())), depth + 1)
    return None


def _cut(value: Any, depth: int = 0) -> Any:
    """The value with long parts left out: nobody sees more than the beginning."""
    if isinstance(value, str):
        return value[:LENGTH]
    if isinstance(value, dict):
        if depth > 3:
            return {}
        return {k: _cut(v, depth + 1) for k, v in list(value.items())[:20]}
    if isinstance(value, list):
        return [] if depth > 3 else [_cut(one, depth + 1) for one in value[:20]]
    return value
