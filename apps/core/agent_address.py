"""Addresses of agents: `lrn:agents/<agent>/environments/<environment>`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(
    r"lrn:agents/([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
    r"/environments/(local|development|staging|production)",
    re.IGNORECASE,
)


def parse_agent_address(address: str) -> tuple[str, str] | None:
    """The agent id and its environment, or None for a malformed address."""
    match = _ADDRESS.fullmatch(address)
    return None if match is None else (match[1], match[2].upper())
