"""The allowed targets of an agent's webhooks.

The platform allows public addresses only. An agent's `langgraph.json` may restrict them further.
With `disable_loopback: false` it may also allow its own routes (an address like `/done`) and, if
the operator permits it, this machine and its network.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from apps.core import errors, ssrf
from apps.core.ssrf import IPAddress
from apps.deployments.langgraph_json.sections import Webhooks
from apps.deployments.routes import Route

MAX_URL_LENGTH = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}
_INVALID_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")


class WebhookBlocked(errors.Invalid):
    code = "webhook_blocked"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Webhook host blocked: {reason}")


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook address that passed the checks of its text."""

    host: str
    """Empty for the agent's own route."""
    port: int
    is_secure: bool
    path: str
    """Path and query of the request."""

    @property
    def is_own(self) -> bool:
        return not self.host

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "https" if self.is_secure else "http"


@dataclass(frozen=True, slots=True)
class WebhookPolicy:
    """`webhooks.url` of an agent's `langgraph.json`, within the platform's limits."""

    require_https: bool = False
    allowed_domains: tuple[str, ...] = ()
    """Exact names, or `*.name` for subdomains; empty allows any."""
    allowed_ports: tuple[int, ...] = ()
    max_url_length: int = MAX_URL_LENGTH
    allows_own_routes: bool = False
    allows_private: bool = False

    @classmethod
    def of(cls, webhooks: Webhooks) -> Self:
        """The policy of this section of a `langgraph.json`."""
        options = webhooks.url
        allows_loopback = not options.disable_loopback
        return cls(
            require_https=options.require_https,
            allowed_domains=tuple(name.lower() for name in options.allowed_domains or ()),
            allowed_ports=tuple(options.allowed_ports or ()),
            max_url_length=min(options.max_url_length or MAX_URL_LENGTH, MAX_URL_LENGTH),
            allows_own_routes=allows_loopback,
            allows_private=settings.ALLOW_PRIVATE_ADDRESSES
            or (allows_loopback and settings.ALLOW_LOCAL_WEBHOOKS),
        )

    def target(self, url: str) -> Target:
        """Parse an address and check its text, without resolving the host."""
        if len(url) > self.max_url_length:
            raise WebhookBlocked(f"the address is longer than {self.max_url_length} characters.")
        if _INVALID_CHARACTERS.search(url) or not url.isprintable():
            raise WebhookBlocked("the address has characters that no address has.")
        if url.startswith("/") and not url.startswith("//"):
            return self._own(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise WebhookBlocked("this is not an address.") from None
        return self._remote(parts, port)

    def _own(self, url: str) -> Target:
        if not self.allows_own_routes:
            raise WebhookBlocked(
                "an address without a host is a route of this agent, which is refused unless its"
                " langgraph.json has `webhooks.url.disable_loopback: false`."
            )
        path = url.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/")
        if ".." in path.split("/"):
            raise WebhookBlocked("the address leads out of this agent's routes.")
        return Target("", 0, is_secure=False, path=_percent_encode(url.partition("#")[0]))

    def _remote(self, parts: SplitResult, port: int | None) -> Target:
        if parts.scheme not in DEFAULT_PORTS:
            raise WebhookBlocked("the address must begin with https:// or http://.")
        if self.require_https and parts.scheme != "https":
            raise WebhookBlocked("this agent's rules want https.")
        if "@" in parts.netloc:
            raise WebhookBlocked("an address with a user name or password would be shown to all.")
        host = _normalize_host(parts.hostname or "")
        port = DEFAULT_PORTS[parts.scheme] if port is None else port
        if not port:
            raise WebhookBlocked("there is no port 0.")
        if self.allowed_domains and not any(_matches(host, name) for name in self.allowed_domains):
            raise WebhookBlocked(f"{host} is not among the domains that this agent allows.")
        if self.allowed_ports and port not in self.allowed_ports:
            raise WebhookBlocked(f"port {port} is not among those that this agent allows.")
        path = parts.path or "/"
        path += f"?{parts.query}" if parts.query else ""
        return Target(host, port, is_secure=parts.scheme == "https", path=_percent_encode(path))

    def reachable(self, host: str, addresses: list[IPAddress]) -> list[IPAddress]:
        """Return the host's addresses if all are allowed. Raises `WebhookBlocked`."""
        if self.allows_private:
            return addresses
        try:
            return ssrf.require_public(host, addresses)
        except ssrf.PrivateAddress:
            raise WebhookBlocked(f"{host} is on this machine or on a private network.") from None


def validate(url: str, route: Route) -> str:
    """Validate the address of a webhook. Raises `WebhookBlocked`.

    Resolves the host, so it must run in a thread. Each delivery repeats the checks.
    """
    rules = WebhookPolicy.of(route.serving.webhooks)
    target = rules.target(url)
    if not target.is_own:
        try:
            rules.reachable(target.host, ssrf.resolve_in_time(target.host))
        except ssrf.ResolutionFailed:
            raise WebhookBlocked(f"the host {target.host} is not known.") from None
    return url


def _normalize_host(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        host = name.rstrip(".").encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not host or "%" in host:
        raise WebhookBlocked("the address names no host.")
    return host


def _matches(host: str, rule: str) -> bool:
    return host.endswith(rule[1:]) if rule.startswith("*.") else host == rule


def _percent_encode(text: str) -> str:
    """The text with everything that is not ASCII percent-encoded."""
    return "".join(
        c if c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text
    )
