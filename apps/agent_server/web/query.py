"""What clients put into the query, in the forms of all of them."""

from __future__ import annotations

from collections.abc import Iterable

from apps.core.errors import Invalid
from apps.core.json import loads


def parse_flag(value: str | None) -> bool:
    """A boolean: Python sends `true`, JavaScript sends `1`."""
    return (value or "").lower() in {"true", "1"}


def parse_list(name: str, values: Iterable[str]) -> list[str]:
    """A list: the key repeated, words between commas, or one JSON array."""
    found: list[str] = []
    for value in values:
        try:
            parsed = loads(value) if value.startswith("[") else value.split(",")
        except ValueError:
            raise Invalid(f"{name}: not a list") from None
        found += [str(word).strip() for word in parsed]
    return [word for word in found if word]
