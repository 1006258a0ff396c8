"""Strings that are not UTF-8 in protobuf messages, for which a parser refuses the whole message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def repair_text(message: bytes, descriptor: Any) -> bytes:
    """Return the message with invalid UTF-8 in its strings, at any depth, replaced by U+FFFD.

    `descriptor` is that of the message type. Raises `DecodeError` if the message is malformed.
    """
    repaired = bytearray()
    for number, wire_type, data in _iterate_fields(message):
        if wire_type == _BYTES:
            content = _repair_field(data, descriptor.fields_by_number.get(number))
            content = encode_varint(len(content)) + content
        elif wire_type == _VARINT:
            content = encode_varint(data)
        elif wire_type in {_FIXED64, _FIXED32}:
            content = data.to_bytes(8 if wire_type == _FIXED64 else 4, "little")
        else:
            continue  # a group, which OTLP does not have
        repaired += encode_varint(number << 3 | wire_type) + content
    return bytes(repaired)


def _repair_field(data: bytes, field: Any) -> bytes:
    if field is not None and field.type == field.TYPE_STRING:
        return data.decode("utf-8", "replace").encode()
    if field is not None and field.type == field.TYPE_MESSAGE:
        return repair_text(data, field.message_type)
    return data


def iterate_messages(message: bytes, *path: int) -> Iterator[bytes]:
    """Yield the encoded messages at the path of field numbers, in the order of the message."""
    number, *deeper = path
    for field_number, wire_type, data in _iterate_fields(message):
        if field_number == number and wire_type == _BYTES:
            if deeper:
                yield from iterate_messages(data, *deeper)
            else:
                yield data


def _iterate_fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    # A message without fields of its own keeps all of them, and checks no string.
    for field in UnknownFieldSet(Empty.FromString(message)):
        yield field.field_number, field.wire_type, field.data


def encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
