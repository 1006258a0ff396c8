"""What an agent says as the content of a tool's result: texts, images, audio and files in order."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from apps.agent_server.a2a.content import last_ai_content
from apps.core.json import dumps_text
from apps.tracing.messages.blocks import parse_content
from apps.tracing.messages.types import AUDIO, IMAGE, TEXT, MessagePart

JSONObject = dict[str, Any]
MAX_MEDIA_BYTES = 8 * 1024 * 1024
"""Of the media of one result, as base64; a medium beyond it is named by a text instead."""
_TEXT_TYPES = ("application/json", "application/xml", "application/yaml")
_UNKNOWN_TYPE = "application/octet-stream"


def to_content(output: JSONObject, *, has_links: bool) -> list[JSONObject]:
    """The content blocks of a graph's output.

    The last message of the model in the order of its blocks, if it has a medium; otherwise the
    output as JSON, which the specification asks of a tool with structured content. `has_links`:
    the client knows links and audio, which early versions of the protocol do not have.
    """
    parts = [
        piece
        for piece in parse_content(last_ai_content(output))
        if isinstance(piece, MessagePart) and (piece.is_medium or piece.kind == TEXT)
    ]
    if not any(part.is_medium and part.text for part in parts):
        return [_text(dumps_text(output))]
    left = MAX_MEDIA_BYTES
    blocks: list[JSONObject] = []
    for number, part in enumerate(parts, 1):
        if part.is_embedded and len(part.text) > left:
            blocks.append(_text(f"{part.label} is left out: it has {part.size:,} bytes."))
            continue
        left -= len(part.text) if part.is_embedded else 0
        blocks.append(_to_block(part, number, has_links=has_links))
    return blocks


def _to_block(part: MessagePart, number: int, *, has_links: bool) -> JSONObject:
    if not part.is_medium:
        return _text(part.text)
    if not part.text:
        return _text(part.label)  # a provider's file, which only its id names
    if not part.is_embedded:
        return _to_link(part) if has_links else _text(part.text)
    head, _, data = part.text.partition(",")
    media_type = part.mime_type or _UNKNOWN_TYPE
    is_base64 = head.endswith(";base64")
    if not is_base64:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    if part.kind == IMAGE or (part.kind == AUDIO and has_links):
        return {"type": part.kind, "data": data, "mimeType": media_type}
    resource = {"uri": f"attachment:///{quote(part.name or str(number))}", "mimeType": media_type}
    text = _decode_text(data) if _is_text(media_type) else None
    content = {"blob": data} if text is None else {"text": text}
    return {"type": "resource", "resource": {**resource, **content}}


def _to_link(part: MessagePart) -> JSONObject:
    name = part.name or part.text.rpartition("/")[2] or part.kind
    media_type = {"mimeType": part.mime_type} if part.mime_type else {}
    return {"type": "resource_link", "uri": part.text, "name": name, **media_type}


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXT_TYPES


def _decode_text(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _text(text: str) -> JSONObject:
    return {"type": "text", "text": text}
