"""Checks against server-side request forgery (SSRF).

Tenants choose the targets of webhooks, Git clones and model calls. A target must not be an address
that only this machine or its network can reach: a database, metadata service or internal port.
The egress proxy imports this module without Django.
"""

from __future__ import annotations

import ipaddress
import socket

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses of this network embed an IPv4 address (RFC 6052).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

# Networks that `ipaddress` calls global: site-local addresses, which preceded fc00::/7 and which
# networks still route internally; the second range for documentation; relays of 6to4; addresses of
# protocols (RFC 6890), one of which is the metadata service of a cloud.
_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in ("fec0::/10", "3fff::/20", "192.88.99.0/24", "192.0.0.0/24")
]


class ResolutionFailed(Exception):
    """The host name does not resolve."""


class PrivateAddress(Exception):
    """The host name resolves to this machine or to a private network."""


def is_public(address: IPAddress) -> bool:
    """Return whether the address is reachable from the public Internet."""
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_ipv4(address: IPAddress) -> IPAddress | None:
    """Return the IPv4 address that an IPv6 address embeds."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None or address.sixtofour is not None:
        return address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def resolve(host: str) -> list[IPAddress]:
    """Return the addresses of a host name in the order to try them.

    Blocks. Raises `ResolutionFailed` when there is none.
    """
    try:
        results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ResolutionFailed(host) from None
    addresses = [
        ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in results
    ]
    if not addresses:
        raise ResolutionFailed(host)
    return list(dict.fromkeys(addresses))


def require_public(host: str, addresses: list[IPAddress]) -> list[IPAddress]:
    """Return the addresses. Raises `PrivateAddress` if any of them is not public."""
    if not all(is_public(address) for address in addresses):
        raise PrivateAddress(host)
    return addresses
