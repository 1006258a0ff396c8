"""For whom a request is counted: a valid key, else a person with their address, else the address.

What does not authenticate is nobody's: it counts on the address, like a request without anything.
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
    """Who is counted."""

    kind: IdentityKind
    value: str
    """What is counted separately: a key's id, a person's id and network, a network."""
    organization_id: UUID | None = None
    """Whose factors hold and who sees the count; None for addresses."""


def identify(
    headers: Mapping[str, str],
    remote: str,
    user: Callable[[], User | None],
) -> Identity:
    """Who is asking. `headers` finds names without regard to case; `user` is of the session.

    `remote` is the client's address as the web process has it, which takes X-Forwarded-For from
    trusted proxies alone.
    """
    if secret := api_key_from_headers(headers):
        try:
            holder = get_key_info(secret=secret)
        except errors.AppError:
            return address_identity(remote)
        return Identity(IdentityKind.KEY, str(holder.key_id), holder.organization_id)
    person = user()
    claimed = headers.get("X-User-Id")
    if person is None or claimed not in (None, "", str(person.pk)):
        return address_identity(remote)
    organization_id = _organization_of(person, headers.get("X-Tenant-Id") or "")
    return Identity(IdentityKind.USER, f"{person.pk} {network(remote)}", organization_id)


def address_identity(remote: str) -> Identity:
    """Anybody who asks from there."""
    return Identity(IdentityKind.IP, network(remote))


_organizations: TTLCache[tuple[UUID, str], UUID | None] = TTLCache(0.8)


def _organization_of(person: User, workspace: str) -> UUID | None:
    """The organization of the workspace that the request names, if it is theirs to enter."""

    def look_up(_: tuple[UUID, str]) -> UUID | None:
        try:
            caller = caller_for(user=person, workspace_id=UUID(workspace))
        except ValueError:
            return None
        return None if caller is None else caller.organization_id

    return _organizations.get((person.pk, workspace), look_up) if workspace else None


@lru_cache(maxsize=4096)
def network(remote: str) -> str:
    """The address that is counted: of IPv6 the network, as one client has all of that."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
