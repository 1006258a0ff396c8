"""What an agent says as the content of a tool's result: texts, images, audio and files in order."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
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
    parts = to_parts(last_ai_content(output))
    if not any(part.is_medium and part.text for part in parts):
        return [_text(dumps_text(output))]
    return to_blocks(parts, has_links=has_links)


def to_parts(content: Any) -> list[MessagePart]:
    """The texts and media of a message."""
    return [
        piece
        for piece in parse_content(content)
        if isinstance(piece, MessagePart) and (piece.is_medium or piece.kind == TEXT)
    ]


def to_blocks(parts: Iterable[MessagePart], *, has_links: bool) -> list[JSONObject]:
    """The content blocks of texts and media; media beyond the limit are named by a text."""
    left = MAX_MEDIA_BYTES
    blocks: list[JSONObject] = []
    for number, part in enumerate(parts, 1):
        if part.is_embedded and len(part.text) > left:
            blocks.append(_text(f"{part.label} is left out: it has {part.size:,} bytes."))
            continue
        left -= len(part.text) if part.is_embedded else 0
        blocks.append(_to_block(part, number, has_links=has_links))
    return blocks


def to_contents(content: Any, uri: str) -> list[JSONObject]:
    """The texts and media of a message as the contents of a resource."""
    contents: list[JSONObject] = []
    left = MAX_MEDIA_BYTES
    for part in to_parts(content):
        if part.is_embedded and len(part.text) <= left:
            left -= len(part.text)
            contents.append({"uri": uri, **_embedded_content(part)})
        else:
            text = f"{part.label} is left out." if part.is_embedded else part.text or part.label
            contents.append({"uri": uri, "mimeType": "text/plain", "text": text})
    return contents


def _to_block(part: MessagePart, number: int, *, has_links: bool) -> JSONObject:
    if not part.is_medium:
        return _text(part.text)
    if not part.text:
        return _text(part.label)  # a provider's file, which only its id names
    if not part.is_embedded:
        return _to_link(part) if has_links else _text(part.text)
    if part.kind == IMAGE or (part.kind == AUDIO and has_links):
        media_type, data = _read_embedded(part)
        return {"type": part.kind, "data": data, "mimeType": media_type}
    # A name may be an address.
    name = quote(part.name or str(number))
    uri = part.name if "://" in part.name else f"attachment:///{name}"
    return {"type": "resource", "resource": {"uri": uri, **_embedded_content(part)}}


def _read_embedded(part: MessagePart) -> tuple[str, str]:
    """The type of an embedded medium, and its bytes as base64."""
    head, _, data = part.text.partition(",")
    if not head.endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return part.mime_type or _UNKNOWN_TYPE, data


def _embedded_content(part: MessagePart) -> JSONObject:
    """The type of an embedded medium with its text, or its bytes as base64."""
    media_type, data = _read_embedded(part)
    text = _decode_text(data) if _is_text(media_type) else None
    return {"mimeType": media_type, **({"blob": data} if text is None else {"text": text})}


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
