"""Parses the content of a message: a text, or blocks of any format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from apps.tracing.messages.formats import (
    ai_sdk,
    anthropic,
    bedrock,
    chat_completions,
    gemini,
    langchain,
    open_telemetry,
    responses,
)
from apps.tracing.messages.media import parse_address
from apps.tracing.messages.types import (
    JSON,
    MAX_BLOCKS,
    MAX_DEPTH,
    TEXT,
    BlockParser,
    MessagePart,
    Piece,
)
from apps.tracing.messages.values import json_text, storable_text

_BLOCKS: dict[str, BlockParser] = {
    **open_telemetry.BLOCKS,
    **ai_sdk.BLOCKS,
    **anthropic.BLOCKS,
    **responses.BLOCKS,
    **chat_completions.BLOCKS,
    **langchain.BLOCKS,
}
"""By `type`."""
_SHAPES: dict[str, BlockParser] = {**bedrock.SHAPES, **gemini.SHAPES}
"""By the key of a block without a type."""


def parse_content(content: Any) -> list[Piece]:
    """Return the pieces of a message's content; what is of no format is one JSON part."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [_text_part(content)]
    if isinstance(content, list):
        pieces: list[Piece] = []
        for block in content[:MAX_BLOCKS]:
            pieces += _parse_block(block)
        if len(content) > MAX_BLOCKS:
            pieces.append(MessagePart(TEXT, f"{len(content) - MAX_BLOCKS:,} more blocks"))
        return pieces
    return list(_parse_block(content))


def parse_result(content: Any, depth: int = 0) -> tuple[MessagePart, ...]:
    """Return the parts of a tool result, which may be text, blocks or any JSON."""
    if depth > MAX_DEPTH:
        return (MessagePart(JSON, json_text(content)),)
    if isinstance(content, list) and not is_block_list(content):
        return (MessagePart(JSON, json_text(content)),) if content else ()
    parts: list[MessagePart] = []
    for piece in parse_content(content):
        if isinstance(piece, MessagePart):
            parts.append(piece)
        else:
            parts.append(MessagePart(JSON, json_text(content)))
            break
    return tuple(parts)


def is_block_list(items: Any) -> bool:
    """Return whether all items are content blocks of a known format or texts."""
    return isinstance(items, list) and bool(items) and all(map(_is_block, items[:MAX_BLOCKS]))


def _is_block(item: Any) -> bool:
    if isinstance(item, str):
        return True
    return isinstance(item, dict) and _find_pieces(item) is not None


def _parse_block(block: Any) -> Iterable[Piece]:
    if isinstance(block, str):
        return (_text_part(block),) if block else ()
    if isinstance(block, dict):
        pieces = _find_pieces(block)
        if pieces is not None:
            return map(_clean, pieces)
    return (MessagePart(JSON, json_text(block)),)


def _find_pieces(block: dict[str, Any]) -> Sequence[Piece] | None:
    kind = block.get("type")
    if isinstance(kind, str):
        if (parse := _BLOCKS.get(kind)) is not None:
            return parse(block)
        if kind.startswith("tool-"):
            return ai_sdk.parse_ui_part(block, kind)
        return None
    for key in block:
        if (parse := _SHAPES.get(key)) is not None and (pieces := parse(block)) is not None:
            return pieces
    return None


def _text_part(text: str) -> MessagePart:
    return parse_address(text) or MessagePart(TEXT, storable_text(text))


def _clean(piece: Piece) -> Piece:
    if isinstance(piece, MessagePart) and not piece.is_medium:
        if piece.kind == TEXT:
            return _text_part(piece.text)
        return MessagePart(piece.kind, storable_text(piece.text))
    return piece
