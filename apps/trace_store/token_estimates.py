"""Estimates the tokens of a model call that reports none, from the text of its payloads.

Estimates are made when a run is read and are never stored: sums, statistics and costs contain
reported tokens only.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from apps.trace_store.types import Payload, RunDetail

BYTES_PER_TOKEN = 4
"""About right for English prose; code has more tokens, and so have some other languages."""
MAX_PAYLOAD_BYTES = 1_048_576
"""Above, no estimate is made: decoding would delay the response."""
_TEXT_KEYS = frozenset({"content", "text", "prompt", "prompts", "completion", "arguments", "args"})
_TEXT_KEYS |= {"reasoning", "reasoning_content", "thinking", "delta", "input", "inputs"}
_TEXT_KEYS |= {"output", "outputs", "query", "question", "answer", "response"}
_NOT_TEXT_KEYS = frozenset({"id", "type", "role", "url", "image_url", "data", "media_type", "name"})


class TokenEstimate(NamedTuple):
    prompt_tokens: int
    completion_tokens: int


def estimate_tokens(run: RunDetail) -> TokenEstimate | None:
    """Return the estimate for a finished model call without reported tokens, else None.

    Needs the payloads `inputs` and `outputs`.
    """
    if not run.row.is_model_call or run.row.usage.total_tokens is not None:
        return None
    inputs, outputs = run.json(Payload.INPUTS), run.json(Payload.OUTPUTS)
    if outputs is None:
        return None
    if len(inputs or b"") + len(outputs) > MAX_PAYLOAD_BYTES:
        return None
    prompt = 0 if inputs is None else _count_tokens(json.loads(inputs))
    completion = _count_tokens(json.loads(outputs))
    return TokenEstimate(prompt, completion) if prompt or completion else None


def _count_tokens(payload: Any) -> int:
    return -(-_count_bytes(payload, is_text=isinstance(payload, str)) // BYTES_PER_TOKEN)


def _count_bytes(value: Any, *, is_text: bool) -> int:
    """Count the UTF-8 bytes of texts, without identifiers and encoded files."""
    total, pending = 0, [(value, is_text)]
    while pending:
        node, is_text = pending.pop()
        if isinstance(node, str):
            if is_text and not node.startswith("data:"):
                total += len(node.encode("utf-8", "replace"))
        elif isinstance(node, list):
            pending += [(member, is_text) for member in node]
        elif isinstance(node, dict):
            pending += [
                (member, is_text or key in _TEXT_KEYS)
                for key, member in node.items()
                if key not in _NOT_TEXT_KEYS
            ]
    return total
