"""Repairs client JSON that strict parsers reject.

NaN and infinities become null; lone surrogates and invalid UTF-8 become U+FFFD. Numbers beyond 64
bits keep all their digits.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

ODD_NUMBER = re.compile(rb"\d{19}|[eE]\+?\d{3}")
"""Matches numbers that orjson, a double or jsonb may be unable to represent."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def repair(text: bytes) -> bytes:
    """Return equivalent strict JSON. Raises `ValueError` if the text is not JSON."""
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False)
        return json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _clean(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value) if _SURROGATE.search(value) else value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_clean(key): _clean(inner) for key, inner in value.items()}
        case list():
            return [_clean(inner) for inner in value]
    return value
