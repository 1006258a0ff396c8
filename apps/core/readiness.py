"""Whether everything that should run does."""

from __future__ import annotations


def check() -> dict[str, str]:
    """Each part with `ok` or what is wrong with it."""
    return {}
