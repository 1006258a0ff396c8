"""Reads images, audio, videos and files of all formats.

Providers wrap the same three things (data in base64, an address, an id) in different keys. A block
is searched for these keys, whichever format it is of: LangChain (`base64`, `source_type`), Chat
Completions (`image_url`, `input_audio`, `file`), Responses (`input_image`, `input_file`),
Anthropic (`source`), Gemini (`inlineData`, `fileData`), Bedrock (`source.bytes`, `s3Location`),
AI SDK (`image`, `data`, `mediaType`) and OpenTelemetry (`blob`, `uri`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from apps.tracing.messages.types import AUDIO, FILE, IMAGE, VIDEO, MessagePart
from apps.tracing.messages.values import first_present, first_string

MAX_BYTE_LIST = 4_000_000
"""Longer lists of bytes are not turned into an address."""

_WRAPPER_KEYS = (
    "source",
    "image_url",
    "input_audio",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    "s3Location",
    "image",
    "audio",
    "video",
    "file",
    "document",
    "imageUrl",
    "video_url",
    "audio_url",
)
_DATA_KEYS = ("base64", "data", "bytes", "file_data", "b64_json", "image")
_ADDRESS_KEYS = ("url", "uri", "fileUri", "file_uri", "file_url", "image_url", "image")
_ID_KEYS = ("file_id", "fileId")
_NAME_KEYS = ("filename", "fileName", "file_name", "title", "name")
_MIME_KEYS = ("mime_type", "mimeType", "media_type", "mediaType")
_MIME = re.compile(r"[a-z]+/[\w.+-]{1,80}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]+={0,2}")
_MIN_BASE64, _SAMPLE = 4, 400
_DATA_ADDRESS = re.compile(r"data:([a-z]+/[\w.+-]{1,80})?[^,]{0,100},")
_REFERENCES = ("https://", "http://", "s3://", "gs://", "azure://", "file://", "attachment://")
_SIGNATURES = (
    ("iVBOR", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lG", "image/gif"),
    ("JVBER", "application/pdf"),
    ("SUQz", "audio/mpeg"),
    ("//u", "audio/mpeg"),
    ("T2dn", "audio/ogg"),
    ("AAAA", "video/mp4"),
)
"""The beginnings of files in base64."""
_FORMATS = {"mp3": "audio/mpeg", "jpg": "image/jpeg", "txt": "text/plain", "md": "text/markdown"}
_DEFAULT_MIME = {IMAGE: "image/png", AUDIO: "audio/wav", VIDEO: "video/mp4"}
_FILE_MIME = "application/octet-stream"


def parse_media(block: dict[str, Any], kind: str) -> MessagePart | None:
    """Return the medium of a block that should have one of this kind; None if it has none."""
    mime_type = name = ""
    pending: list[Any] = [block]
    for _ in range(4):
        if not pending:
            break
        fields = pending.pop(0)
        mime_type = mime_type or _mime_type(fields, kind)
        name = name or first_string(fields, _NAME_KEYS)
        for value in (first_present(fields, _DATA_KEYS), *map(fields.get, _ADDRESS_KEYS)):
            if address := _address(value, kind, mime_type):
                return _build_part(kind, address, mime_type, name)
        file_id = first_string(fields, _ID_KEYS)
        if not file_id and fields.get("source_type") == "id":
            file_id = first_string(fields, ("id",))
        if file_id:
            return MessagePart(_kind_of(mime_type, kind), "", mime_type, name or file_id)
        for key in _WRAPPER_KEYS:
            inner = fields.get(key)
            if isinstance(inner, dict):
                pending.append(inner)
            elif address := _address(inner, kind, mime_type):
                return _build_part(kind, address, mime_type, name)
    return None


def parse_address(text: str) -> MessagePart | None:
    """Return the medium of a `data:` address in a text; None for any other text."""
    match = _DATA_ADDRESS.match(text) if text.startswith("data:") else None
    if match is None or match[1] is None:
        return None
    return MessagePart(_kind_of(match[1], FILE), text, match[1])


def _build_part(kind: str, address: str, mime_type: str, name: str) -> MessagePart:
    if match := _DATA_ADDRESS.match(address):
        mime_type = match[1] or mime_type
    return MessagePart(_kind_of(mime_type, kind), address, mime_type, name)


def _kind_of(mime_type: str, default: str) -> str:
    family = mime_type.partition("/")[0]
    if family in (IMAGE, AUDIO, VIDEO):
        return family
    return FILE if mime_type else default


def _mime_type(fields: dict[str, Any], kind: str) -> str:
    if (mime_type := first_string(fields, _MIME_KEYS).lower()) and _MIME.fullmatch(mime_type):
        return mime_type
    extension = fields.get("format")
    if isinstance(extension, str) and re.fullmatch(r"[a-z0-9]{2,8}", extension):
        family = "application" if kind == FILE else kind
        return _FORMATS.get(extension, f"{family}/{extension}")
    return ""


def _address(value: Any, kind: str, mime_type: str) -> str:
    """Return the address of a value that is one, or that is the data; else empty."""
    if isinstance(value, str):
        if value.startswith("data:"):
            return value if _DATA_ADDRESS.match(value) else ""
        if value.startswith(_REFERENCES):
            return value
        # A sample is enough: a browser shows no broken data, and the value may have megabytes.
        if len(value) < _MIN_BASE64 or not _BASE64.fullmatch(value[:_SAMPLE].strip()):
            return ""
        return f"data:{mime_type or _guess_mime(value, kind)};base64,{value}"
    if (data := _bytes_of(value)) is not None:
        encoded = b64encode(data).decode()
        return f"data:{mime_type or _guess_mime(encoded, kind)};base64,{encoded}"
    return ""


def _guess_mime(data: str, kind: str) -> str:
    if data.startswith("UklGR"):  # RIFF holds both
        return "audio/wav" if kind == AUDIO else "image/webp"
    for beginning, mime_type in _SIGNATURES:
        if data.startswith(beginning):
            return mime_type
    return _DEFAULT_MIME.get(kind, _FILE_MIME)


def _bytes_of(value: Any) -> bytes | None:
    """Return the bytes of a JavaScript `Buffer` or `Uint8Array` as JSON has them."""
    if isinstance(value, dict) and value.get("type") == "Buffer":
        value = value.get("data")
    elif isinstance(value, dict) and "0" in value:
        value = list(value.values())
    if not isinstance(value, list) or not 0 < len(value) <= MAX_BYTE_LIST:
        return None
    try:
        return bytes(value)
    except (TypeError, ValueError):
        return None
