"""Limits on the structure of frames that a worker accepts from a graph host.

A byte of msgpack can become an empty map of 64 bytes in memory, so the size alone does not bound
what a frame costs. The structure is counted before it is decoded, and the count ends at the limit.
"""

from __future__ import annotations

MAX_ELEMENTS = 262_144
MAX_DEPTH = 100
UNCHECKED_BYTES = 65_536
"""Smaller frames are decoded uncounted: they have at most that many elements."""


class FrameTooComplex(ValueError):
    """The frame has too many elements or is nested too deeply."""


# By type byte of msgpack: the size of the length field, or of the whole element.
_LENGTH_FIELDS = {
    0xC4: 1,
    0xC5: 2,
    0xC6: 4,
    0xC7: 1,
    0xC8: 2,
    0xC9: 4,
    0xD9: 1,
    0xDA: 2,
    0xDB: 4,
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,
}
_FIXED_SIZES = {
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
    0xD4: 3,
    0xD5: 4,
    0xD6: 6,
    0xD7: 10,
    0xD8: 18,
}
_EXTENSIONS = (0xC7, 0xC8, 0xC9)
_CHILDREN = {0xDC: 1, 0xDD: 1, 0xDE: 2, 0xDF: 2}


def check_structure(body: bytes, max_elements: int = MAX_ELEMENTS) -> None:
    """Raise `FrameTooComplex` if the msgpack value has too many elements or levels.

    Malformed data passes: the decoder rejects it.
    """
    end = len(body)
    position = elements = 0
    remaining = 1  # elements of the innermost open container
    outer: list[int] = []
    while True:
        while remaining == 0:
            if not outer:
                return
            remaining = outer.pop()
        if position >= end:
            return
        remaining -= 1
        elements += 1
        tag = body[position]
        children = 0
        if tag < 0x80 or tag >= 0xE0:
            position += 1
        elif tag < 0x90:
            position, children = position + 1, 2 * (tag & 0x0F)
        elif tag < 0xA0:
            position, children = position + 1, tag & 0x0F
        elif tag < 0xC0:
            position += 1 + (tag & 0x1F)
        elif (field := _LENGTH_FIELDS.get(tag)) is not None:
            count = int.from_bytes(body[position + 1 : position + 1 + field], "big")
            position += 1 + field
            if tag in _CHILDREN:
                children = count * _CHILDREN[tag]
            else:
                position += count + (tag in _EXTENSIONS)
        else:
            position += _FIXED_SIZES.get(tag, 1)
        if elements + children > max_elements:
            raise FrameTooComplex(f"A message has more than {max_elements} elements.")
        if children:
            outer.append(remaining)
            remaining = children
            if len(outer) > MAX_DEPTH:
                raise FrameTooComplex(f"A message is nested deeper than {MAX_DEPTH} levels.")
