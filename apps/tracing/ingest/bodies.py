"""The bytes of a request, whatever they were compressed with."""

from __future__ import annotations

import io
import zlib

import zstandard
from django.conf import settings
from django.http import HttpRequest

from apps.core import errors
from apps.tracing.errors import BadBody

# Text packs well: the body of a request may be larger than what came over the wire.
_GROWTH = 4
_GZIP_OR_ZLIB = 47


def read_body(request: HttpRequest) -> bytes:
    """The decompressed body; `TooLarge` past the limit, `BadBody` when it cannot be unpacked."""
    body = request.body
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    limit = settings.MAX_BODY_BYTES * _GROWTH
    match encoding:
        case "" | "identity":
            return body
        case "zstd":
            unpacked = _unzstd(body, limit)
        case "gzip" | "x-gzip" | "deflate":
            unpacked = _gunzip(body, limit)
        case _:
            raise errors.UnsupportedMediaType(f"Content-Encoding {encoding[:40]!r} is not known.")
    if len(unpacked) > limit:
        raise errors.TooLarge(f"A body may have {limit} bytes when it is unpacked.")
    return unpacked


def _unzstd(body: bytes, limit: int) -> bytes:
    """All frames of the body: clients flush one and begin another."""
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        io.BytesIO(body), read_across_frames=True
    )
    try:
        return reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise BadBody(f"The body is not zstd: {error}") from None


def _gunzip(body: bytes, limit: int) -> bytes:
    out = bytearray()
    rest = body
    try:
        while rest and len(out) <= limit:
            member = zlib.decompressobj(_GZIP_OR_ZLIB)
            out += member.decompress(rest, limit + 1 - len(out))
            if not member.eof:
                if len(out) > limit:
                    break
                raise BadBody("The compressed body ends too early.")
            rest = member.unused_data
    except zlib.error as error:
        raise BadBody(f"The body is not gzip: {error}") from None
    return bytes(out)
