"""Events of Claude Code as spans: a trace for each prompt, the session as its thread.

Claude Code tells of itself by log records: a prompt, each request to the model, each tool. They
name no spans. Those of one prompt hang below a root that never comes, for which another stands in
until nothing more follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from apps.ingest.otlp import ids
from apps.ingest.otlp.logs import Record
from apps.ingest.otlp.spans import ERROR, OK, Decoded, Span

_PREFIX = "claude_code."
_KINDS = {"api_request": "llm", "api_error": "llm", "tool_result": "tool"}
_NUMBERS = {
    "input_tokens": int,
    "output_tokens": int,
    "cache_read_tokens": int,
    "cache_creation_tokens": int,
    "cost_usd": float,
    "duration_ms": float,
    "ttft_ms": float,
}
_NAMES = {
    "prompt": "user_prompt",
    "model": "gen_ai.request.model",
    "tool_name": "gen_ai.tool.name",
    "tool_parameters": "tool_input",
    "cost_usd": "gen_ai.usage.cost",
}
_MOST_MILLISECONDS = 86_400_000


def spans(records: Iterable[Record]) -> Decoded:
    """A span for each event; those without a time cannot be placed."""
    found = Decoded()
    for record in records:
        if record.time_ns <= 0:
            found.refuse("An event has no time.")
        else:
            found.spans.append(_span(record))
    return found


def _span(record: Record) -> Span:
    event = record.name.removeprefix(_PREFIX)
    said = {key: _number(key, value) for key, value in record.attributes.items()}
    trace_id, parent = _trace(said)
    took = said.get("duration_ms")
    is_known = isinstance(took, float) and 0 <= took < _MOST_MILLISECONDS
    error = said.get("error")
    failed = bool(error) or str(said.get("success", "")).lower() == "false"
    attributes = {_NAMES.get(key, key): value for key, value in said.items()}
    attributes["langsmith.span.kind"] = _KINDS.get(event, "chain")
    if event in {"api_request", "api_error"}:
        attributes.setdefault("gen_ai.provider.name", "anthropic")
    tool = said.get("tool_name")
    return Span(
        record.origin,
        trace_id,
        _digest(ids.SPAN_ID, trace_id, event, said.get("event.sequence", record.time_ns)),
        parent,
        tool if isinstance(tool, str) and event == "tool_result" else record.name,
        record.time_ns - int(took * 1e6 if is_known and took else 0),
        record.time_ns,
        attributes,
        [],
        [],
        status_code=ERROR if failed else OK,
        status_message=str(error or ""),
    )


def _trace(said: dict[str, Any]) -> tuple[bytes, bytes]:
    """The trace of the event's prompt, and the root that stands for it."""
    trace_id = _digest(ids.TRACE_ID, said.get("session.id"), said.get("prompt.id"))
    return trace_id, _digest(ids.SPAN_ID, trace_id, "root")


def _digest(size: int, *parts: object) -> bytes:
    return blake2b(
        "\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=size
    ).digest()


def _number(key: str, value: Any) -> Any:
    """Its attributes are texts, numbers too."""
    kind = _NUMBERS.get(key)
    if kind is None or isinstance(value, bool):
        return value
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return value
