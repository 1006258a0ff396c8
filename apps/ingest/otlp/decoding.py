"""The spans in a request's body, in either encoding of OTLP."""

from __future__ import annotations

from apps.core import errors
from apps.ingest.otlp import jsonspans, protobuf
from apps.ingest.otlp.spans import Decoded

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def encoding_of(content_type: str) -> str:
    """`PROTOBUF` or `JSON`; `UnsupportedMediaType` for anything else."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in {PROTOBUF, "application/protobuf", "application/octet-stream", ""}:
        return PROTOBUF
    if kind == JSON:
        return JSON
    raise errors.UnsupportedMediaType(f"OTLP comes as {PROTOBUF} or {JSON}, not {kind[:60]!r}.")


def decode(body: bytes, encoding: str) -> Decoded:
    """The spans; `BadBody` when the body is not in that encoding."""
    return protobuf.decode(body) if encoding == PROTOBUF else jsonspans.decode(body)
