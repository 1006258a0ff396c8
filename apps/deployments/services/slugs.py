"""The last part of a deployment's address, unique over all workspaces."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

LONGEST = 56  # with its hash it still fits a DNS label of 63


def candidates(name: str) -> Iterator[str]:
    """Slugs to try for a name: the name itself, then the name with a hash.

    The hash is random: one made from the workspace or the name would tell that somebody else
    has the plain name.
    """
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST].rstrip("-") or "agent"
    yield base
    while True:
        yield f"{base}-{secrets.token_hex(3)}"
