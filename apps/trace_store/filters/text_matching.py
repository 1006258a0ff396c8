"""`like` patterns with the semantics of SQL, and the words that `search` compares."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

MIN_PREFIX_LENGTH = 4
"""Shorter words that a user types are searched whole."""

_PATTERN_PART = re.compile(r"\\(?P<escaped>.)|(?P<wildcard>[%_])|(?P<plain>[^%_\\]+)", re.DOTALL)


def matches_like(text: str, pattern: str) -> bool:
    first, *others = _fragments(pattern)
    if not others:
        return first.expression.fullmatch(text) is not None
    last = others.pop()
    position, end = first.length, len(text) - last.length
    if end < position or not first.expression.match(text) or not last.expression.match(text, end):
        return False
    # Greedy from the left without backtracking, so the time is linear for every pattern.
    for fragment in others:
        match = fragment.expression.search(text, position, end)
        if match is None:
            return False
        position = match.end()
    return True


def fold_case(text: str) -> str:
    """Fold case per character, as the built-in locale of PostgreSQL does for `ilike`.

    Python's `lower` may expand a character and depends on the context of a sigma.
    """
    return text.lower() if text.isascii() else "".join(item.lower()[0] for item in text)


def required_words(pattern: str) -> set[str]:
    """Words that every text matching the pattern contains, in any case."""
    parts = [
        "".join("\x00" if item is None else item for item in part)
        for part in _split_pattern(pattern)
    ]
    texts = "\x00".join(parts).split("\x00")
    required: set[str] = set()
    for index, text in enumerate(texts):
        words = list(split_words(text))
        # A word next to a wildcard may be part of a longer word.
        if words and index > 0 and next(split_words(f"x{text}")) != "x":
            del words[0]
        if words and index < len(texts) - 1 and list(split_words(f"{text}x"))[-1] != "x":
            del words[-1]
        required.update(words)
    return required


class _Fragment(NamedTuple):
    """The part between two `%`, which matches texts of one length."""

    expression: re.Pattern[str]
    length: int


@lru_cache(maxsize=1_000)
def _fragments(pattern: str) -> tuple[_Fragment, ...]:
    return tuple(
        _Fragment(
            re.compile(
                "".join("." if item is None else re.escape(item) for item in part), re.DOTALL
            ),
            sum(1 if item is None else len(item) for item in part),
        )
        for part in _split_pattern(pattern)
    )


def _split_pattern(pattern: str) -> list[list[str | None]]:
    """The texts between the pattern's `%`; None is a `_`."""
    parts: list[list[str | None]] = [[]]
    for piece in _PATTERN_PART.finditer(pattern):
        if piece["wildcard"] == "%":
            parts.append([])
        else:
            parts[-1].append(None if piece["wildcard"] else piece["escaped"] or piece["plain"])
    return parts


_ASCII = re.compile(r"[a-z0-9]+")
# Scripts without spaces between words: each character is a word.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_SEARCHED_WORD = re.compile(rf"(?P<word>{_WORD.pattern})(?P<is_prefix>\*)?")


class SearchedWords(NamedTuple):
    """What a search requires: whole words, and beginnings of words, which end with `*`."""

    words: frozenset[str]
    prefixes: frozenset[str]


@lru_cache(maxsize=1_000)
def parse_search(text: str) -> SearchedWords:
    words: set[str] = set()
    prefixes: set[str] = set()
    for match in _SEARCHED_WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        (prefixes if match["is_prefix"] else words).add(match["word"])
    return SearchedWords(frozenset(words), frozenset(prefixes))


def split_words(text: str) -> Iterator[str]:
    """The words in order: sequences of letters and digits, case- and width-folded."""
    if text.isascii():
        return iter(_ASCII.findall(text.lower()))
    return iter(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
