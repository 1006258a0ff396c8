"""Text that reads like a language, of a vocabulary whose words are as unequal as real ones."""

from __future__ import annotations

from itertools import accumulate
from random import Random

_CONSONANTS = "bdfgklmnprstvwz"
_VOWELS = "aeiou"
_VOCABULARY = 8000
_LENGTH = 400_000
_MARKS = (". ", ", ", "; ", "?\n", " / ", ": ")

RARE_WORDS = tuple(f"kestrel{number:02d}" for number in range(20))
"""Each stands in one of some 50,000 runs."""


class Texts:
    """Cuts of any length out of one long text."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        syllables = [one + other for one in _CONSONANTS for other in _VOWELS]
        words = sorted(
            {"".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(_VOCABULARY)}
        )
        dice.shuffle(words)
        weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
        drawn = dice.choices(words, cum_weights=weights, k=_LENGTH // 7)
        self._text = "".join(
            word + (_MARKS[place % len(_MARKS)] if place % 11 == 0 else " ")
            for place, word in enumerate(drawn)
        )

    def cut(self, length: int) -> str:
        begin = int(self._dice.random() * (len(self._text) - length))
        return self._text[begin : begin + length].strip()

    def sentence(self) -> str:
        return self.cut(self._dice.randint(30, 110)).replace("\n", " ").capitalize()
