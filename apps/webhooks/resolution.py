"""Resolves the host names of webhooks; each owner has a share of the threads.

The owner is an organization, if the caller knows it.
"""

from __future__ import annotations

import ipaddress
from uuid import UUID

from apps.core import sync_bridge
from apps.core.name_resolver import Resolver
from apps.core.ssrf import IPAddress

TIMEOUT_SECONDS = 3.0
"""Of the caller, waiting for a thread included."""
_resolver = Resolver()


def resolve(host: str, owner_id: UUID | None) -> list[IPAddress]:
    """Resolve in a thread that may block. Raises `ResolutionFailed` or `NotStarted`."""
    sync_bridge.require_thread()
    return _resolver.resolve(host, TIMEOUT_SECONDS, owner_id)


async def resolve_async(host: str, owner_id: UUID | None) -> list[IPAddress]:
    """Resolve on an event loop; an address is its own result. Raises `ResolutionFailed`."""
    if (address := parse_address(host)) is not None:
        return [address]
    return await _resolver.resolve_async(host, TIMEOUT_SECONDS, owner_id)


def parse_address(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
