"""A parser for `multipart/form-data` bodies; it ignores file names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from apps.ingest.errors import BadBody

_BOUNDARY = re.compile(r'(?:^|;)\s*boundary=(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_HEADER = re.compile(rb"^([!-9;-~]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_NAME = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"|[;\s]name=([^\s;"]+)', re.IGNORECASE)
_LONG_NAME = re.compile(rb"[;\s]name\*=utf-8''([^\s;]+)", re.IGNORECASE)
_LENGTH = re.compile(rb";\s*length=\"?(\d+)\"?", re.IGNORECASE)
_MAX_HEAD_BYTES = 16_384
# Matches the headers that nearly all clients send; `_parse_any_head` handles all others.
_COMMON_HEAD = re.compile(
    rb'\r\nContent-Disposition: form-data; name="([^"\\\r\n]+)"(?:; filename="[^"\\\r\n]*")?'
    rb"\r\nContent-Type: ([^\r\n;]+)(?:; length=(\d+))?(?:\r\nContent-Length: (\d+))?\r\n\r\n"
)


@dataclass(slots=True)
class FormPart:
    name: str
    content_type: str
    """Without the `length` parameter."""
    content: bytes
    declared_length: int | None

    @property
    def is_complete(self) -> bool:
        return self.declared_length is None or self.declared_length == len(self.content)


def parse_boundary(content_type: str) -> bytes:
    """The boundary in a Content-Type header."""
    if not content_type.lower().startswith("multipart/form-data"):
        raise BadBody("The Content-Type is not multipart/form-data.")
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise BadBody("The Content-Type has no boundary.")
    return (match[1] or match[2]).encode("latin-1", "replace")


def split_parts(body: bytes, boundary: bytes) -> list[bytes]:
    """Return the raw parts with their heads. Raises `BadBody` if the body is truncated or empty."""
    raw_parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if len(raw_parts) == 1:
        raise BadBody("The body does not contain its boundary.")
    if not raw_parts[-1].startswith(b"--"):
        raise BadBody("The body ends before its closing boundary.")
    return raw_parts[1:-1]


def parse_part(raw_part: bytes) -> FormPart:
    """Parse a raw part. Raises `BadBody` if its head is malformed."""
    head = _COMMON_HEAD.match(raw_part)
    if head is None:
        return _parse_any_head(raw_part)
    name, content_type, type_length, header_length = head.groups()
    length = type_length or header_length
    return FormPart(
        name.decode("utf-8", "replace"),
        content_type.decode("latin-1"),
        raw_part[head.end() :],
        None if length is None else _parse_length(length),
    )


def _parse_any_head(raw_part: bytes) -> FormPart:
    line_end = raw_part.find(b"\r\n")
    if line_end < 0 or raw_part[:line_end].strip(b" \t"):
        raise BadBody("A boundary is not followed by a line break.")
    head_end = raw_part.find(b"\r\n\r\n", line_end, line_end + _MAX_HEAD_BYTES)
    if head_end < 0:
        raise BadBody("The headers of a part do not end.")
    disposition = content_type = b""
    length = None
    for header in _HEADER.finditer(raw_part[line_end + 2 : head_end].replace(b"\r\n", b"\n")):
        match header[1].lower():
            case b"content-disposition":
                disposition = header[2]
            case b"content-type":
                content_type = header[2]
            case b"content-length" if header[2].isdigit():
                length = _parse_length(header[2])
    if (type_length := _LENGTH.search(content_type)) is not None:
        length = _parse_length(type_length[1])
        start, end = type_length.span()
        content_type = content_type[:start] + content_type[end:]
    return FormPart(
        name=_parse_name(disposition),
        content_type=content_type.decode("latin-1").strip() or "application/octet-stream",
        content=raw_part[head_end + 4 :],
        declared_length=length,
    )


def _parse_length(digits: bytes) -> int:
    return int(digits[:20])


def _parse_name(disposition: bytes) -> str:
    if (encoded_name := _LONG_NAME.search(disposition)) is not None:
        return unquote_to_bytes(encoded_name[1]).decode("utf-8", "replace")
    match = _NAME.search(disposition)
    if match is None:
        raise BadBody("A part has no name.")
    raw = match[1] if match[1] is not None else match[2]
    return re.sub(rb"\\(.)", rb"\1", raw).decode("utf-8", "replace")
