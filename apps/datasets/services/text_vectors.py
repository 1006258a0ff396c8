"""Vectors of texts by their words and parts of words, without a language model.

The platform has no embedding provider. Words and trigrams of letters are hashed into the dimensions
of a vector (the "hashing trick"), so that texts with the same or similarly spelled words are close.
Synonyms are not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from apps.trace_store.media import text_without_media

METHOD = "lexical-v1"
DIMENSIONS = 256
_WORD = re.compile(r"\w+")
_MAX_CHARACTERS = 20_000
_TRIGRAM_WEIGHT = 0.3


def text_of(value: Any) -> str:
    """Return the texts and numbers in a JSON value, without its keys and base64 of files."""
    return " ".join(_leaves(value))[:_MAX_CHARACTERS]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member)
    elif value is not None and not isinstance(value, bool):
        yield text_without_media(str(value))


def embed(text: str) -> list[float]:
    """Return a vector of length 1; that of a text without words is zero."""
    counts: Counter[str] = Counter(_WORD.findall(text.lower()[:_MAX_CHARACTERS]))
    vector = [0.0] * DIMENSIONS
    for word, count in counts.items():
        weight = 1 + math.log(count)
        _add(vector, word, weight)
        padded = f"_{word}_"
        for start in range(len(padded) - 2):
            _add(vector, f"#{padded[start : start + 3]}", weight * _TRIGRAM_WEIGHT)
    length = math.sqrt(sum(item * item for item in vector))
    return [item / length for item in vector] if length else vector


def _add(vector: list[float], feature: str, weight: float) -> None:
    """Add the feature to the dimension of its hash; its sign makes collisions cancel out."""
    digest = crc32(feature.encode())
    vector[(digest >> 1) % DIMENSIONS] += weight if digest & 1 else -weight


def vector_literal(vector: list[float]) -> str:
    """Return pgvector's text form."""
    return f"[{','.join(f'{item:.6g}' for item in vector)}]"
