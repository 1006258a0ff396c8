"""Reads what an interrupted run waits for from the text of its error.

LangGraph reports interrupts as an exception: in Python by the `repr` of its `Interrupt` objects, in
JavaScript by their JSON. A text that is neither, or is cut, gives no requests.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.core.json import dumps_text
from apps.trace_store.run_status import find_raised

_TRACEBACK = "Traceback (most recent call last)"
_MAX_PARSED = 20_000
_MAX_BRACKETS = 400
"""Deeper or larger literals are left to the raw text: Python's parser recurses."""
_TEXT_KEYS = ("question", "message", "description", "prompt", "query", "text", "instructions")
"""Keys of a request under which people write what they ask, in order of preference."""
_MAX_FIELDS = 8
_MAX_TEXT = 1_000


@dataclass(frozen=True)
class InterruptRequest:
    """One request: a sentence, and the other values as names and texts."""

    text: str
    fields: tuple[tuple[str, str], ...] = ()


def parse_requests(text: str) -> list[InterruptRequest]:
    """Return the requests of an interrupt's error text; none if it cannot be read."""
    head = find_raised(text).partition(_TRACEBACK)[0].strip()[:_MAX_PARSED]
    try:
        values = list(_read_python(head)) or list(_read_json(head))
    except RecursionError:  # of `ast.unparse`
        return []
    return [request for value in values for request in _build_requests(value)]


def describe_wait(error_preview: str) -> str:
    """Return one line for lists: that the run waits, and for what if the text says it."""
    requests = parse_requests(error_preview)
    text = next((request.text for request in requests if request.text), "")
    return f"Waiting for input: {text}" if text else "Waiting for input"


def _read_python(text: str) -> Iterator[Any]:
    """Yield the values of `Interrupt(value=..., ...)`."""
    if sum(map(text.count, "([{")) > _MAX_BRACKETS:
        return
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "Interrupt":
            continue
        for keyword in node.keywords:
            if keyword.arg == "value":
                yield _literal(keyword.value)


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal; an object within it is its source text."""
    match node:
        case ast.Dict():
            return {
                str(_literal(key)): _literal(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        case ast.List() | ast.Tuple() | ast.Set():
            return [_literal(item) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except (ValueError, RecursionError, MemoryError):
        return ast.unparse(node)


def _read_json(text: str) -> Iterator[Any]:
    start = text.find("[")
    if start < 0:
        return
    try:
        items, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return
    for item in items:
        if isinstance(item, dict) and "value" in item:
            yield item["value"]


def _build_requests(value: Any) -> Iterator[InterruptRequest]:
    """Yield one request, or one for each action that LangChain's middleware asks to approve."""
    actions = value.get("action_requests") if isinstance(value, dict) else None
    if isinstance(actions, list) and actions and all(isinstance(item, dict) for item in actions):
        for action in actions:
            arguments = action.get("args") or action.get("arguments") or {}
            arguments = arguments if isinstance(arguments, dict) else {"arguments": arguments}
            name = str(action.get("name") or action.get("action") or "a step")
            yield InterruptRequest(f"Approve {name}?"[:_MAX_TEXT], _fields(arguments))
    elif isinstance(value, dict):
        key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
        others = {name: item for name, item in value.items() if name != key}
        yield InterruptRequest(value[key][:_MAX_TEXT] if key else "", _fields(others))
    else:
        text = value if isinstance(value, str) else dumps_text(value)
        yield InterruptRequest(text[:_MAX_TEXT])


def _fields(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, (value if isinstance(value, str) else dumps_text(value))[:_MAX_TEXT])
        for name, value in list(values.items())[:_MAX_FIELDS]
    )
