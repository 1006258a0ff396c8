"""Media in the JSON of runs: large ones are held as attachments, and none is text for searches.

Agents send the same images again with every model call. Ingest replaces the base64 of each by a
reference with the hash of the medium, and stores the medium as an attachment of the run. Reads put
the base64 back, so that clients read what they sent. Search terms, filters and exports read the
stored JSON, without what is left of base64.
"""

from __future__ import annotations

import hashlib
import logging
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings

from apps.core import object_storage

if TYPE_CHECKING:
    from apps.trace_store.types import Attachment

log = logging.getLogger(__name__)

MIN_LENGTH = 32_768
"""Characters of base64; shorter media stay in the JSON."""
MAX_MEDIA = 50
"""The number of media that leave one payload; further ones stay."""
NAME_PREFIX = "media-"
_SCHEME = b"slipway-media:"
_REFERENCE = re.compile(_SCHEME + rb"([0-9a-f]{64})")
_SIGNATURES = {
    b"iVBOR": ("image/png", b"\x89PNG"),
    b"/9j/": ("image/jpeg", b"\xff\xd8\xff"),
    b"R0lG": ("image/gif", b"GIF8"),
    b"JVBER": ("application/pdf", b"%PDF"),
    b"SUQz": ("audio/mpeg", b"ID3"),
    b"T2dn": ("audio/ogg", b"OggS"),
    b"UklGR": ("", b"RIFF"),
    b"AAAA": ("", b"\0\0\0"),
}
"""The beginnings of files: in base64, and the type and the bytes."""
_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_MEDIUM = re.compile(
    rb"(?:data:(?P<mime>[a-z]+/[\w.+-]{1,80})[^,\"\\]{0,100};base64,|\"(?=%b))"
    rb"(?P<data>[A-Za-z0-9+/]{%d,}+={0,2}+)(?=\\?[\"')> ])(?!\\?\"\s*:)"
    % (b"|".join(map(re.escape, _SIGNATURES)), MIN_LENGTH)
)
_CHUNK = 250
_NO_TEXT = re.compile(r"slipway-media:[0-9a-f]{64}|(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{500,}={0,2}")
_EXTENSIONS = {"jpeg": "jpg", "mpeg": "mp3", "svg+xml": "svg", "quicktime": "mov"}


@dataclass(frozen=True, slots=True)
class Medium:
    """An image, audio, video or file that was in the JSON of a run."""

    name: str
    mime_type: str
    content: bytes


def extract_media(payload: bytes) -> tuple[bytes, list[Medium]]:
    """Return the JSON with references in place of its large media, and the media.

    Only base64 that `restore_media` can write again, byte for byte, is taken.
    """
    if len(payload) < MIN_LENGTH or not _may_have_media(payload):
        return payload, []
    media: dict[bytes, Medium] = {}

    def replace(match: re.Match[bytes]) -> bytes:
        data = match["data"]
        medium = _decode(data, match["mime"]) if len(media) < MAX_MEDIA else None
        if medium is None:
            return match[0]
        digest = hashlib.sha256(medium.content).hexdigest().encode()
        media[digest] = medium
        return match[0][: -len(data)] + _SCHEME + digest

    replaced = _MEDIUM.sub(replace, payload)
    return replaced, list(media.values())


def restore_media(payload: bytes, attachments: Iterable[Attachment]) -> bytes:
    """Return the JSON that was sent. The reference to a lost medium stays.

    References that a client wrote itself may name a medium of megabytes thousands of times, so
    those that make the JSON larger than a request can be stay, too.
    """
    paths = {
        attachment.name[len(NAME_PREFIX) :].partition(".")[0].encode(): attachment.path
        for attachment in attachments
        if is_media_name(attachment.name)
    }
    if not paths or _SCHEME not in payload:
        return payload
    encoded: dict[bytes, bytes] = {}
    left = settings.MAX_BODY_BYTES - len(payload)

    def put_back(match: re.Match[bytes]) -> bytes:
        nonlocal left
        digest = match[1]
        if digest not in encoded:
            encoded[digest] = _encode(paths.get(digest)) or match[0]
        left -= len(encoded[digest]) - len(match[0])
        return encoded[digest] if left >= 0 else match[0]

    return _REFERENCE.sub(put_back, payload)


def text_without_media(text: str) -> str:
    """Remove the base64 of files, which is no text, and references to media.

    Base64 is a sequence of at least 500 of its characters with digits and letters of both cases.
    """
    if "slipway-media:" not in text and not _has_long_word(text):
        return text
    return _NO_TEXT.sub(_remove_medium, text)


def _has_long_word(text: str) -> bool:
    """Whether 500 characters may be without a blank: then one of these chunks has none."""
    return any(
        " " not in text[start : start + _CHUNK]
        for start in range(0, len(text) - _CHUNK + 1, _CHUNK)
    )


def _remove_medium(match: re.Match[str]) -> str:
    start = match[0][:4_000]
    is_mixed = any(map(str.isdigit, start)) and start != start.lower() and start != start.upper()
    return "" if is_mixed or ":" in start else match[0]


def is_media_name(name: str) -> bool:
    """Whether the attachment was in the JSON of its run."""
    return name.startswith(NAME_PREFIX) and len(name) > len(NAME_PREFIX) + 64


def _may_have_media(payload: bytes) -> bool:
    return b";base64," in payload or any(b'"' + start in payload for start in _SIGNATURES)


def _decode(data: bytes, stated_type: bytes | None) -> Medium | None:
    try:
        content = b64decode(data, validate=True)
    except NotBase64:
        return None
    mime_type = stated_type.decode() if stated_type else _find_type(data, content)
    if not mime_type or b64encode(content) != data:
        return None
    subtype = mime_type.partition("/")[2]
    extension = _EXTENSIONS.get(subtype, subtype)
    name = f"{NAME_PREFIX}{hashlib.sha256(content).hexdigest()}.{extension}"
    return Medium(name, mime_type, content)


def _find_type(data: bytes, content: bytes) -> str:
    """Return the MIME type of a file by its first bytes; empty if they are of no known type."""
    for start, (mime_type, beginning) in _SIGNATURES.items():
        if not data.startswith(start) or not content.startswith(beginning):
            continue
        if start == b"UklGR":
            return _RIFF_TYPES.get(content[8:12], "")
        if start == b"AAAA":
            return "video/mp4" if content[4:8] == b"ftyp" else ""
        return mime_type
    return ""


def _encode(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return b64encode(object_storage.get(path))
    except FileNotFoundError:
        log.exception("medium %s is missing from object storage", path)
        return None
