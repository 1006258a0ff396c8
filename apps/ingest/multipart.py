"""Bodies of `multipart/form-data`, part by part, without regard to file names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from apps.ingest.errors import BadBody

_BOUNDARY = re.compile(r'(?:^|;)\s*boundary=(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_HEADER = re.compile(rb"^([!-9;-~]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_NAME = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"|[;\s]name=([^\s;"]+)', re.IGNORECASE)
_LONG_NAME = re.compile(rb"[;\s]name\*=utf-8''([^\s;]+)", re.IGNORECASE)
_LENGTH = re.compile(rb";\s*length=\"?(\d+)\"?", re.IGNORECASE)
_LARGEST_HEAD = 16_384
# The headers as nearly all clients write them, in one look; any others are read one by one.
_USUAL_HEAD = re.compile(
    rb'\r\nContent-Disposition: form-data; name="([^"\\\r\n]+)"(?:; filename="[^"\\\r\n]*")?'
    rb"\r\nContent-Type: ([^\r\n;]+)(?:; length=(\d+))?(?:\r\nContent-Length: (\d+))?\r\n\r\n"
)


@dataclass(slots=True)
class Part:
    name: str
    content_type: str
    """Without the `length` parameter."""
    content: bytes
    declared_length: int | None

    @property
    def is_whole(self) -> bool:
        return self.declared_length is None or self.declared_length == len(self.content)


def boundary_of(content_type: str) -> bytes:
    """The boundary in a Content-Type header."""
    if not content_type.lower().startswith("multipart/form-data"):
        raise BadBody("The Content-Type is not multipart/form-data.")
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadBody("The Content-Type names no boundary.")
    return (found[1] or found[2]).encode("latin-1", "replace")


def parts(body: bytes, boundary: bytes) -> Iterator[Part]:
    """The parts in their order; `BadBody` when the body is cut off or has no parts at all."""
    return map(part_of, pieces(body, boundary))


def pieces(body: bytes, boundary: bytes) -> list[bytes]:
    """The parts with their heads, as they stand between the boundaries."""
    found = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if len(found) == 1:
        raise BadBody("The body does not contain its boundary.")
    if not found[-1].startswith(b"--"):
        raise BadBody("The body ends before its closing boundary.")
    return found[1:-1]


def part_of(piece: bytes) -> Part:
    """The part that a piece holds; `BadBody` when it is none."""
    usual = _USUAL_HEAD.match(piece)
    if usual is None:
        return _unusual_part(piece)
    name, content_type, in_type, in_header = usual.groups()
    length = in_type or in_header
    return Part(
        name.decode("utf-8", "replace"),
        content_type.decode("latin-1"),
        piece[usual.end() :],
        None if length is None else _number(length),
    )


def _unusual_part(piece: bytes) -> Part:
    line_end = piece.find(b"\r\n")
    if line_end < 0 or piece[:line_end].strip(b" \t"):
        raise BadBody("A boundary is not followed by a line end.")
    head_end = piece.find(b"\r\n\r\n", line_end, line_end + _LARGEST_HEAD)
    if head_end < 0:
        raise BadBody("A part has no end of its headers.")
    disposition = content_type = b""
    length = None
    for found in _HEADER.finditer(piece[line_end + 2 : head_end].replace(b"\r\n", b"\n")):
        match found[1].lower():
            case b"content-disposition":
                disposition = found[2]
            case b"content-type":
                content_type = found[2]
            case b"content-length" if found[2].isdigit():
                length = _number(found[2])
    if (in_type := _LENGTH.search(content_type)) is not None:
        length = _number(in_type[1])
        content_type = content_type[: in_type.start()] + content_type[in_type.end() :]
    return Part(
        name=_name(disposition),
        content_type=content_type.decode("latin-1").strip() or "application/octet-stream",
        content=piece[head_end + 4 :],
        declared_length=length,
    )


def _number(digits: bytes) -> int:
    return int(digits[:20])


def _name(disposition: bytes) -> str:
    if (long := _LONG_NAME.search(disposition)) is not None:
        return unquote_to_bytes(long[1]).decode("utf-8", "replace")
    found = _NAME.search(disposition)
    if found is None:
        raise BadBody("A part has no name.")
    raw = found[1] if found[1] is not None else found[2]
    return re.sub(rb"\\(.)", rb"\1", raw).decode("utf-8", "replace")
