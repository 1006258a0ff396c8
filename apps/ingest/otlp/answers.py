"""Answers in the encoding of the question, as the OTLP specification has them."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from apps.core.json import dumps
from apps.ingest.decoders import Refused
from apps.ingest.otlp.decoding import PROTOBUF

_MESSAGE_FIELD = b"\x12"
_LONGEST = 2000


def success(encoding: str, refused: Sequence[Refused]) -> bytes:
    """Nothing when all is stored, else how many spans are not, and why."""
    message = _reasons(refused)
    if encoding == PROTOBUF:
        response = ExportTraceServiceResponse()
        if refused:
            response.partial_success.rejected_spans = len(refused)
            response.partial_success.error_message = message
        found: bytes = response.SerializeToString()
        return found
    if not refused:
        return b"{}"
    return dumps({"partialSuccess": {"rejectedSpans": str(len(refused)), "errorMessage": message}})


def _reasons(refused: Sequence[Refused]) -> str:
    reasons = dict.fromkeys(f"{one.what}: {one.why}" for one in refused)
    text = "; ".join(list(reasons)[:20])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def status(message: str) -> bytes:
    """A `google.rpc.Status` with that message, in protobuf."""
    text = message.encode("utf-8", "replace")
    return _MESSAGE_FIELD + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
