"""Regular expressions of authors, which the web process tries on what strangers send.

A pattern may take time that is exponential in the text, so only a kind that cannot is accepted: at
most two open-ended repeats, each of a single character or class.
"""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

MOST_REPEATS = 2
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_SINGLE = frozenset({_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN})
_PLAIN = _SINGLE | {_constants.AT}


def check_pattern(text: str) -> str:
    """The pattern itself. `ValueError` says why it is not taken."""
    try:
        parsed = _parser.parse(text)
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if len(text) > 500:
        raise ValueError("is longer than 500 characters")
    if _repeats(parsed) > MOST_REPEATS:
        raise ValueError(f"may have {MOST_REPEATS} open-ended repeats (`*`, `+`) at most")
    return text


def _repeats(parsed: Any) -> int:
    """How many open-ended repeats there are; `ValueError` for a part that is not taken."""
    found = 0
    for kind, value in parsed:
        if kind in _REPEATS:
            _, most, inner = value
            if most > 1 and (len(inner) != 1 or inner[0][0] not in _SINGLE):
                raise ValueError("may repeat single characters and classes only, not groups")
            found += _repeats(inner) + (1 if most > 1 else 0)
        elif kind is _constants.SUBPATTERN:
            found += _repeats(value[-1])
        elif kind is _constants.BRANCH:
            found += sum(_repeats(branch) for branch in value[1])
        elif kind not in _PLAIN:
            raise ValueError("may not look around or refer back")
    return found
