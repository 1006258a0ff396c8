"""The bytes of a request, whatever they were compressed with."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard
from django.conf import settings
from django.http import HttpRequest

from apps.core import errors
from apps.core.body_memory import RESERVATION_KEY, Reservation
from apps.ingest.errors import BadBody

# Text packs well: the body of a request may be larger than what came over the wire.
_GROWTH = 4
_GZIP_OR_ZLIB = 47
_CHUNK = 1_048_576


_SIZE = "slipway.unpacked_bytes"


def size_of(request: HttpRequest) -> int:
    """How large the body was that `read_body` has unpacked."""
    found: int = request.META.get(_SIZE, 0)
    return found


def read_body(request: HttpRequest) -> bytes:
    """The decompressed body; `TooLarge` past the limit, `BadBody` when it cannot be unpacked."""
    body = _unpacked(request)
    request.META[_SIZE] = len(body)
    return body


def _unpacked(request: HttpRequest) -> bytes:
    body = request.body
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    match encoding:
        case "" | "identity":
            return body
        case "zstd":
            chunks = _unzstd(body)
        case "gzip" | "x-gzip" | "deflate":
            chunks = _gunzip(body)
        case _:
            raise errors.UnsupportedMediaType(f"Content-Encoding {encoding[:40]!r} is not known.")
    return _gathered(chunks, request.META.get(RESERVATION_KEY))


def _gathered(chunks: Iterator[bytes], held: Reservation | None) -> bytes:
    """The chunks as one, each looked at before the next is unpacked."""
    limit = settings.MAX_BODY_BYTES * _GROWTH
    found = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise errors.TooLarge(f"A body may have {limit} bytes when it is unpacked.")
        if held is not None:
            held.add(len(chunk))
        found.append(chunk)
    return found[0] if len(found) == 1 else b"".join(found)


def _unzstd(body: bytes) -> Iterator[bytes]:
    """All frames of the body: clients flush one and begin another."""
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        body, read_across_frames=True
    )
    try:
        while chunk := reader.read(_CHUNK):
            yield chunk
    except zstandard.ZstdError as error:
        raise BadBody(f"The body is not zstd: {error}") from None


def _gunzip(body: bytes) -> Iterator[bytes]:
    rest = body
    try:
        while rest:
            member = zlib.decompressobj(_GZIP_OR_ZLIB)
            while not member.eof:
                chunk = member.decompress(rest, _CHUNK)
                if not chunk and not member.eof:
                    raise BadBody("The compressed body ends too early.")
                yield chunk
                rest = member.unconsumed_tail
            rest = member.unused_data
    except zlib.error as error:
        raise BadBody(f"The body is not gzip: {error}") from None
