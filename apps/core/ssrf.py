"""Addresses that a tenant can aim at: whose machines they may lead to.

Webhooks, Git servers and the like go where a tenant says. They must not reach what only this
machine or its network can: databases, metadata services, the platform's own inside.
"""

from __future__ import annotations

import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from functools import cache

from apps.core import sync_bridge

LOOK_UP_SECONDS = 3.0

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks that carry the address of another machine inside theirs.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class ResolutionFailed(Exception):
    """The name leads nowhere."""


class PrivateAddress(Exception):
    """The name leads to this machine or to a private network."""


def is_public(address: IPAddress) -> bool:
    """Whether anybody on the Internet could reach the same machine under this address."""
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: IPAddress) -> IPAddress | None:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None or address.sixtofour is not None:
        return address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def resolve(host: str) -> list[IPAddress]:
    """The addresses of a name, in the order to try them. Blocks; `Unresolved` when it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ResolutionFailed(host) from None
    addresses = [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
    if not addresses:
        raise ResolutionFailed(host)
    return list(dict.fromkeys(addresses))


def resolve_in_time(host: str) -> list[IPAddress]:
    """`resolve`, but a name server that does not answer is given up after a few seconds."""
    sync_bridge.require_thread()
    try:
        return _resolvers().submit(resolve, host).result(LOOK_UP_SECONDS)
    except TookTooLong:
        raise ResolutionFailed(host) from None


def public(host: str, addresses: list[IPAddress]) -> list[IPAddress]:
    """The same addresses; `Private` when a single one of them leads inside."""
    if not all(is_public(address) for address in addresses):
        raise PrivateAddress(host)
    return addresses


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix="resolver")
