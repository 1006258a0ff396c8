"""What a word is, for `search` and for the index of runs: one definition for both."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_ASCII = re.compile(r"[a-z0-9]+")
# Scripts that put no space between words: each character stands for itself.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def words(text: str) -> Iterator[str]:
    """The words in order: runs of letters and digits, without regard to case or to width."""
    if text.isascii():
        return iter(_ASCII.findall(text.lower()))
    folded = unicodedata.normalize("NFKC", text).casefold()
    return iter(_WORD.findall(folded))
