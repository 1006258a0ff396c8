"""The decompressed body of a request."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard
from django.conf import settings
from django.http import HttpRequest

from apps.core import errors
from apps.core.http.body_memory import RESERVATION_KEY, Reservation
from apps.ingest.errors import BadBody

# A decompressed body may be larger than the limit of transferred bytes, as text compresses well.
_MAX_EXPANSION = 4
_GZIP_OR_ZLIB = 47
_CHUNK_BYTES = 1_048_576
_INPUT_BYTES = 65_536
_MAX_GZIP_MEMBERS = 10_000
_SIZE_KEY = "slipway.unpacked_bytes"


def body_size(request: HttpRequest) -> int:
    """The size of the body that `read_body` decompressed."""
    size: int = request.META.get(_SIZE_KEY, 0)
    return size


def read_body(request: HttpRequest) -> bytes:
    """Return the decompressed body. Raises `TooLarge`, and `BadBody` for corrupt compression."""
    body = _decompress(request)
    request.META[_SIZE_KEY] = len(body)
    return body


def _decompress(request: HttpRequest) -> bytes:
    body = request.body
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    match encoding:
        case "" | "identity":
            return body
        case "zstd":
            chunks = _decompress_zstd(body)
        case "gzip" | "x-gzip" | "deflate":
            chunks = _decompress_gzip(body)
        case _:
            raise errors.UnsupportedMediaType(
                f"Content-Encoding {encoding[:40]!r} is not supported."
            )
    return _join_limited(chunks, request.META.get(RESERVATION_KEY))


def _join_limited(chunks: Iterator[bytes], reservation: Reservation | None) -> bytes:
    """Join the chunks; each is checked and reserved before the next is decompressed."""
    limit = settings.MAX_BODY_BYTES * _MAX_EXPANSION
    parts = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise errors.TooLarge(f"A decompressed body may have at most {limit} bytes.")
        if reservation is not None:
            reservation.add(len(chunk))
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(body: bytes) -> Iterator[bytes]:
    """Decompress all frames: clients flush one frame and begin another."""
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        body, read_across_frames=True
    )
    try:
        while chunk := reader.read(_CHUNK_BYTES):
            yield chunk
    except zstandard.ZstdError as error:
        raise BadBody(f"The body is not zstd: {error}") from None


def _decompress_gzip(body: bytes) -> Iterator[bytes]:
    """Decompress all members: clients flush one member and begin another.

    Members and input pieces are bounded, because `zlib` copies the rest of its input at the end of
    each member: a body of empty members would take time quadratic in its size.
    """
    remaining = memoryview(body)
    try:
        for _ in range(_MAX_GZIP_MEMBERS):
            member = zlib.decompressobj(_GZIP_OR_ZLIB)
            while not member.eof:
                piece = remaining[:_INPUT_BYTES]
                chunk = member.decompress(piece, _CHUNK_BYTES)
                unused = member.unused_data if member.eof else member.unconsumed_tail
                remaining = remaining[len(piece) - len(unused) :]
                if chunk:
                    yield chunk
                elif not piece and not member.eof:
                    raise BadBody("The compressed body is truncated.")
            if not remaining:
                return
    except zlib.error as error:
        raise BadBody(f"The body is not gzip: {error}") from None
    raise BadBody(f"The body has more than {_MAX_GZIP_MEMBERS} gzip members.")
