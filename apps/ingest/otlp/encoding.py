"""Encodings of OTLP requests and responses: protobuf and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from apps.core import errors
from apps.core.json import dumps
from apps.ingest.operations import RejectedItem
from apps.ingest.otlp import json_decoder, protobuf_decoder
from apps.ingest.otlp.invalid_text import encode_varint
from apps.ingest.otlp.spans import DecodedSpans

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_STATUS_MESSAGE_TAG = b"\x12"
_MAX_MESSAGE_LENGTH = 2000
_MAX_REASONS = 20


def parse_encoding(content_type: str) -> str:
    """Return `PROTOBUF` or `JSON`. Raises `UnsupportedMediaType` for other content types."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in {PROTOBUF, "application/protobuf", "application/octet-stream", ""}:
        return PROTOBUF
    if media_type == JSON:
        return JSON
    raise errors.UnsupportedMediaType(
        f"OTLP requests must be {PROTOBUF} or {JSON}, not {media_type[:60]!r}."
    )


def decode_spans(body: bytes, encoding: str) -> DecodedSpans:
    """Decode a trace request. Raises `BadBody` if the body is not in that encoding."""
    if encoding == PROTOBUF:
        return protobuf_decoder.decode(body)
    return json_decoder.decode(body)


def encode_success(encoding: str, rejected: Sequence[RejectedItem]) -> bytes:
    """The response: empty if all spans are stored, else the rejected count and reasons."""
    message = _join_reasons(rejected)
    if encoding == PROTOBUF:
        response = ExportTraceServiceResponse()
        if rejected:
            response.partial_success.rejected_spans = len(rejected)
            response.partial_success.error_message = message
        encoded: bytes = response.SerializeToString()
        return encoded
    if not rejected:
        return b"{}"
    partial = {"rejectedSpans": str(len(rejected)), "errorMessage": message}
    return dumps({"partialSuccess": partial})


def _join_reasons(rejected: Sequence[RejectedItem]) -> str:
    reasons = dict.fromkeys(f"{error.item}: {error}" for error in rejected)
    text = "; ".join(list(reasons)[:_MAX_REASONS])
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[: _MAX_MESSAGE_LENGTH - 1]}…"


def encode_status(message: str) -> bytes:
    """A `google.rpc.Status` with the message, in protobuf."""
    text = message.encode("utf-8", "replace")
    return _STATUS_MESSAGE_TAG + encode_varint(len(text)) + text
