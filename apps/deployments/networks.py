"""The network of agents and builds: a namespace of its own, and what it reaches by the settings."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from django.conf import settings

from apps.deployments import sandbox
from apps.deployments.sandbox import Egress, Forward, Network

EVERY_NETWORK = ("0.0.0.0/0", "::/0")
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def network() -> Network:
    """Return the kind of network that sandboxes have on this installation."""
    return Network.PROXIED if settings.AGENT_NETWORK == "proxied" else Network.SHARED


def agent_egress() -> Egress:
    """Public addresses, the platform itself, and the operator's networks.

    A platform at the loopback address is at the same address inside: its port is forwarded.
    """
    internal = _addresses([settings.INTERNAL_URL])
    urls = (settings.BASE_URL, settings.API_BASE_URL)
    public = [pair for pair in _addresses(urls) if pair[0] not in _LOOPBACK_HOSTS]
    return Egress(
        networks=settings.EGRESS_NETWORKS,
        hosts=(*internal, *public),
        forwards=tuple(
            Forward(port=port, host=host, host_port=port)
            for host, port in internal
            if host in _LOOPBACK_HOSTS
        ),
    )


def build_egress(urls: Iterable[str], indexes: tuple[sandbox.LocalIndex, ...] = ()) -> Egress:
    """Public addresses, the package indexes that the operator configured, and their networks."""
    return Egress(
        networks=settings.EGRESS_NETWORKS,
        hosts=tuple(_addresses(urls)),
        indexes=indexes,
        has_own_servers=False,
        uses_operator_proxy=True,
    )


def clone_egress() -> Egress:
    """Public addresses, or every address where the operator allows private Git servers."""
    private = EVERY_NETWORK if settings.ALLOW_PRIVATE_ADDRESSES else ()
    return Egress(
        networks=(*settings.EGRESS_NETWORKS, *private),
        has_own_servers=False,
        uses_operator_proxy=True,
    )


def _addresses(urls: Iterable[str]) -> list[tuple[str, int]]:
    results: dict[tuple[str, int], None] = {}
    for url in urls:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
        except ValueError:
            continue  # the installer itself reports a malformed address
        if host and port:
            results[host, port] = None
    return list(results)
