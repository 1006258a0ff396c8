"""The identity that a request is counted for: a valid key, else user and address, else address.

Requests with invalid credentials count on the address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from apps.api_keys.authentication import api_key_from_headers
from apps.api_keys.services import get_key_info
from apps.core import errors
from apps.core.ttl_cache import TTLCache
from apps.organizations.models import User
from apps.organizations.services import caller_for
from apps.rate_limits.table import IdentityKind


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity with its own counters."""

    kind: IdentityKind
    value: str
    """A key's id, a user's id and network, or a network."""
    organization_id: UUID | None = None
    """The organization whose factors and statistics apply; None for addresses."""


def identify(
    headers: Mapping[str, str],
    remote: str,
    user: Callable[[], User | None],
    workspace: str = "",
) -> Identity:
    """Return the identity. `headers` is case-insensitive; `user` returns the session's user.

    `workspace` is the id in the path, if there is one; else a header names the workspace.

    `remote` is the client address, for which the web process trusts X-Forwarded-For of configured
    proxies only.
    """
    if secret := api_key_from_headers(headers):
        try:
            key = get_key_info(secret=secret)
        except errors.AppError:
            return address_identity(remote)
        return Identity(IdentityKind.KEY, str(key.key_id), key.organization_id)
    session_user = user()
    claimed = headers.get("X-User-Id")
    if session_user is None or claimed not in (None, "", str(session_user.pk)):
        return address_identity(remote)
    workspace = workspace or headers.get("X-Tenant-Id") or ""
    organization_id = _organization_of(session_user, workspace)
    return Identity(IdentityKind.USER, f"{session_user.pk} {network(remote)}", organization_id)


def address_identity(remote: str) -> Identity:
    """Return the identity of an address."""
    return Identity(IdentityKind.IP, network(remote))


_organizations: TTLCache[tuple[UUID, str], UUID | None] = TTLCache(0.8)


def _organization_of(user: User, workspace: str) -> UUID | None:
    """Return the organization of the named workspace if the user may enter it."""

    def look_up(_: tuple[UUID, str]) -> UUID | None:
        try:
            caller = caller_for(user=user, workspace_id=UUID(workspace))
        except ValueError:
            return None
        return None if caller is None else caller.organization_id

    return _organizations.get((user.pk, workspace), look_up) if workspace else None


@lru_cache(maxsize=4096)
def network(remote: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, which has one client."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
