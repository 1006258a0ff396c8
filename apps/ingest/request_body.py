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
_GZIP_OR_ZLIB, _RAW = 47, -15
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
    header = request.headers.get("Content-Encoding", "")
    codings = [coding.strip().lower() for coding in header.split(",")]
    match [coding for coding in codings if coding not in {"", "identity"}]:
        case []:
            return body
        case ["zstd"]:
            chunks = _decompress_zstd(body)
        case ["gzip" | "x-gzip"]:
            chunks = _decompress_gzip(body)
        case ["deflate"]:
            chunks = _decompress_gzip(body, _RAW if _is_raw_deflate(body) else _GZIP_OR_ZLIB)
        case _:
            raise errors.UnsupportedMediaType(f"Content-Encoding {header[:40]!r} is not supported.")
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


def _is_raw_deflate(body: bytes) -> bool:
    """Whether the body has no zlib header (RFC 1950, 2.2), which some clients leave out.

    RFC 9110 (8.4.1.2) notes them. Some send gzip under this name.
    """
    is_zlib = body[:1] != b"" and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
    return not is_zlib and body[:2] != b"\x1f\x8b"


def _decompress_gzip(body: bytes, window_bits: int = _GZIP_OR_ZLIB) -> Iterator[bytes]:
    """Decompress all members: clients flush one member and begin another.

    Members and input pieces are bounded, because `zlib` copies the rest of its input at the end of
    each member: a body of empty members would take time quadratic in its size.
    """
    remaining = memoryview(body)
    try:
        for _ in range(_MAX_GZIP_MEMBERS):
            member = zlib.decompressobj(window_bits)
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
        raise BadBody(f"The body is not gzip or deflate: {error}") from None
    raise BadBody(f"The body has more than {_MAX_GZIP_MEMBERS} gzip members.")
