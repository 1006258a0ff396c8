"""The client address: X-Forwarded-For is trusted as far as trusted proxies wrote it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from apps.rate_limits.identity import identify
from apps.rate_limits.table import IdentityKind
from config import web
from config.env import Env

PROXIES = "10.0.0.0/8, 192.0.2.7, 2001:db8:ffff::/48"
PROXY, CLIENT = "10.1.2.3", "203.0.113.9"


def read_config(proxies: str, monkeypatch: Any) -> dict[str, Any]:
    """Return the web process's uvicorn settings for forwarded headers."""
    config: dict[str, Any] = {}

    class ConfigCaptured(Exception):
        pass

    def capture(*args: Any, **kwargs: Any) -> None:
        config.update(kwargs)
        raise ConfigCaptured

    environment = Env(trusted_proxies=proxies)  # type: ignore[call-arg]
    monkeypatch.setattr(web, "env", lambda: environment)
    monkeypatch.setattr(web.uvicorn, "Config", capture)
    monkeypatch.setattr("sys.argv", ["web"])
    with pytest.raises(ConfigCaptured):
        web.main()
    return config


def identify_client(kind: str, peer: str, forwarded: list[str], config: dict[str, Any]) -> str:
    """Return the address or network under which a request from `peer` is counted."""
    scopes: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(scope)

    served: Any = application
    if config["proxy_headers"]:
        served = ProxyHeadersMiddleware(served, trusted_hosts=config["forwarded_allow_ips"])
    scope = {
        "type": kind,
        "path": "/",
        "scheme": "http" if kind == "http" else "ws",
        "client": (peer, 50000),
        "headers": [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded],
    }
    asyncio.run(served(scope, None, None))
    identity = identify({}, (scopes[0]["client"] or ("",))[0], lambda: None)
    assert identity.kind is IdentityKind.IP
    return identity.value


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        # Only proxies are trusted.
        (CLIENT, ["198.51.100.1"], CLIENT),
        (CLIENT, ["10.9.9.9"], CLIENT),
        (PROXY, [], PROXY),
        (PROXY, ["198.51.100.1"], "198.51.100.1"),
        # Entries of the client are left of those that a proxy added.
        (PROXY, ["1.1.1.1, 8.8.8.8, 198.51.100.1"], "198.51.100.1"),
        (PROXY, ["10.9.9.9, 198.51.100.1"], "198.51.100.1"),
        (PROXY, ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        # Through several proxies: the first address from the right that is not a proxy.
        (PROXY, ["1.1.1.1, 198.51.100.1, 192.0.2.7, 10.4.4.4"], "198.51.100.1"),
        (PROXY, ["198.51.100.1, 192.0.2.8, 10.4.4.4"], "192.0.2.8"),
        # An IPv6 client counts as its network, with or without a port.
        (PROXY, ["2001:db8:1:2:3::4"], "2001:db8:1:2::/64"),
        (PROXY, ["[2001:db8:1:2::9]:443"], "2001:db8:1:2::/64"),
        ("2001:db8:ffff::1", ["2001:db8:1:2::9, 2001:db8:ffff::2"], "2001:db8:1:2::/64"),
        (PROXY, ["::ffff:198.51.100.1"], "198.51.100.1"),
        (PROXY, ["198.51.100.1:4711"], "198.51.100.1"),
        # All invalid values count as one client.
        (PROXY, ["1.1.1.1, <script>"], "unknown"),
        (PROXY, ["1.1.1.1, unknown"], "unknown"),
        (PROXY, ["999.1.1.1"], "unknown"),
    ],
)
def test_client_is_the_rightmost_address_that_is_not_a_trusted_proxy(
    monkeypatch, kind, peer, forwarded, expected
):
    config = read_config(PROXIES, monkeypatch)

    assert identify_client(kind, peer, forwarded, config) == expected


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("peer", ["127.0.0.1", PROXY, CLIENT])
def test_forwarded_header_is_ignored_without_trusted_proxies(monkeypatch, kind, peer):
    config = read_config("", monkeypatch)

    assert identify_client(kind, peer, ["198.51.100.1"], config) == peer


@pytest.mark.parametrize("word", ["proxy.example", "10.0.0.0/33", "*"])
def test_invalid_proxy_address_prevents_the_start(word):
    with pytest.raises(ValueError, match="does not appear to be"):
        Env(trusted_proxies=word).proxies  # type: ignore[call-arg]  # noqa: B018
