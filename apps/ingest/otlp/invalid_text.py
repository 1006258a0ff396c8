"""Strings that are not UTF-8 in protobuf messages, for which a parser refuses the whole message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_MAX_DEPTH = 100
"""Nested messages, as many as the parser of protobuf accepts."""
_MAX_FIELDS = 500_000
"""Fields read to repair one body, about half a second; five times those of a usual batch."""


def repair_text(message: bytes, descriptor: Any) -> bytes:
    """Return the message with invalid UTF-8 in its strings, at any depth, replaced by U+FFFD.

    `descriptor` is that of the message type. Raises `DecodeError` if the message is malformed,
    nested too deeply or has too many fields.
    """
    return _repair_message(message, descriptor, _MAX_DEPTH, iter(range(_MAX_FIELDS)))


def iterate_messages(message: bytes, *path: int) -> Iterator[bytes]:
    """Yield the encoded messages at the path of field numbers, in the order of the message."""
    number, *deeper = path
    for field_number, wire_type, data in _iterate_fields(message):
        if field_number == number and wire_type == _BYTES:
            if deeper:
                yield from iterate_messages(data, *deeper)
            else:
                yield data


def _repair_message(message: bytes, descriptor: Any, depth: int, budget: Iterator[int]) -> bytes:
    if depth == 0:
        raise DecodeError("The message is nested too deeply.")
    repaired = bytearray()
    for number, wire_type, data in _iterate_fields(message):
        if next(budget, None) is None:
            raise DecodeError("The message has too many fields.")
        content = data
        if wire_type == _BYTES:
            field = descriptor.fields_by_number.get(number)
            if field is not None and field.type == field.TYPE_STRING:
                content = data.decode("utf-8", "replace").encode()
            elif field is not None and field.type == field.TYPE_MESSAGE:
                content = _repair_message(data, field.message_type, depth - 1, budget)
            content = encode_varint(len(content)) + content
        repaired += encode_varint(number << 3 | wire_type) + content
    return bytes(repaired)


def _iterate_fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield field number, wire type and content of each field, numbers as they are encoded.

    Google's `UnknownFieldSet` reads them too, but ends the process with a segmentation fault at
    400 nested messages (protobuf 7.36.2, upb). Groups, which OTLP does not have, are malformed.
    """
    position, end = 0, len(message)
    while position < end:
        tag, position = _read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        start = position
        if wire_type == _VARINT:
            _, position = _read_varint(message, position)
        elif wire_type == _BYTES:
            length, start = _read_varint(message, position)
            position = start + length
        elif wire_type in _FIXED_BYTES:
            position += _FIXED_BYTES[wire_type]
        else:
            raise DecodeError(f"The wire type {wire_type} is unknown.")
        if position > end:
            raise DecodeError("The message is truncated.")
        yield number, wire_type, message[start:position]


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at the position, and the position after it."""
    number = 0
    for shift, byte in zip(range(0, 70, 7), message[position : position + 10], strict=False):
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
    raise DecodeError("A number is truncated or too long.")


def encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
