"""Which addresses a sandbox may reach."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator

import psutil

from apps.core.ssrf import IPAddress, is_public

_REFRESH_SECONDS = 30.0


class AddressRefused(Exception):
    """The target is an address that the sandbox may not reach."""


class Rules:
    """The rules of one sandbox: public addresses, and those that the operator allows."""

    def __init__(self, networks: list[str], hosts: list[tuple[str, int]]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._hosts = {(name.lower(), port) for name, port in hosts}

    def is_allowed_host(self, host: str, port: int) -> bool:
        return (host.lower(), port) in self._hosts

    def check(self, host: str, port: int, addresses: list[IPAddress]) -> None:
        """Raise `AddressRefused` unless every address of the host is allowed."""
        if not self.is_allowed_host(host, port) and not all(map(self._is_allowed, addresses)):
            raise AddressRefused(host)

    def _is_allowed(self, address: IPAddress) -> bool:
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if any(address in network for network in self._networks):
            return True
        if _is_documentation(address):
            return not any(address in interface.network for interface in _interfaces())
        # A public address of this machine leads to servers that a firewall may hide from others.
        return is_public(address) and not any(
            address == interface.ip for interface in _interfaces()
        )


# Reserved for documentation (RFC 5737): neither private nor public. A machine that routes one has a
# gateway there that represents outside servers, such as a mirror that serves their names.
_DOCUMENTATION = [
    ipaddress.ip_network(network)
    for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
]


def _is_documentation(address: IPAddress) -> bool:
    return any(address in network for network in _DOCUMENTATION)


_Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_known: tuple[float, tuple[_Interface, ...]] = (-_REFRESH_SECONDS, ())


def _interfaces() -> tuple[_Interface, ...]:
    """Return the addresses of this machine with their networks."""
    global _known  # noqa: PLW0603
    now = time.monotonic()
    if now - _known[0] > _REFRESH_SECONDS:
        _known = now, tuple(_read_interfaces())
    return _known[1]


def _read_interfaces() -> Iterator[_Interface]:
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address, mask = entry.address.partition("%")[0], entry.netmask
            if mask and entry.family == socket.AF_INET6:
                mask = str(int(ipaddress.IPv6Address(mask)).bit_count())
            yield ipaddress.ip_interface(f"{address}/{mask}" if mask else address)
