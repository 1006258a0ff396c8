"""The allowed targets of webhooks: by default public addresses only."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

from apps.core import errors, ssrf
from apps.core.name_resolver import NotStarted
from apps.core.ssrf import IPAddress
from apps.webhooks import resolution

MAX_URL_LENGTH = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}
_INVALID_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")


class WebhookBlocked(errors.Invalid):
    code = "webhook_blocked"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"Webhook host blocked: {reason}")


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A parsed webhook address that the policy allows; its host is not resolved yet."""

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
    def origin(self) -> tuple[str, int, bool]:
        return self.host, self.port, self.is_secure

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
    """What a tenant allows, within the platform's limits."""

    require_https: bool = False
    allowed_domains: tuple[str, ...] = ()
    """Exact names, or `*.name` for subdomains; empty allows any."""
    allowed_ports: tuple[int, ...] = ()
    max_url_length: int = MAX_URL_LENGTH
    allows_own_routes: bool = False
    allows_private: bool = False

    def parse_target(self, url: str) -> WebhookTarget:
        """Parse an address and check its text, without resolving the host."""
        if len(url) > self.max_url_length:
            raise WebhookBlocked(f"the address is longer than {self.max_url_length} characters.")
        if _INVALID_CHARACTERS.search(url) or not url.isprintable():
            raise WebhookBlocked("the address contains invalid characters.")
        if url.startswith("/") and not url.startswith("//"):
            return self._parse_own_route(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise WebhookBlocked("the address is not a valid URL.") from None
        return self._parse_remote(parts, port)

    def _parse_own_route(self, url: str) -> WebhookTarget:
        if not self.allows_own_routes:
            raise WebhookBlocked(
                "an address without a host is a route of this agent; its langgraph.json must allow"
                " these routes with `webhooks.url.disable_loopback: false`."
            )
        path = url.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/")
        if ".." in path.split("/"):
            raise WebhookBlocked("the address leads outside of this agent's routes.")
        return WebhookTarget("", 0, is_secure=False, path=_percent_encode(url.partition("#")[0]))

    def _parse_remote(self, parts: SplitResult, port: int | None) -> WebhookTarget:
        if parts.scheme not in DEFAULT_PORTS:
            raise WebhookBlocked("the address must begin with https:// or http://.")
        if self.require_https and parts.scheme != "https":
            raise WebhookBlocked("this agent requires https.")
        if "@" in parts.netloc:
            raise WebhookBlocked("the address must not contain a user name or password.")
        host = _normalize_host(parts.hostname or "")
        port = DEFAULT_PORTS[parts.scheme] if port is None else port
        if not port:
            raise WebhookBlocked("port 0 is not allowed.")
        if self.allowed_domains and not any(
            _matches_domain(host, name) for name in self.allowed_domains
        ):
            raise WebhookBlocked(f"{host} is not one of the domains that this agent allows.")
        if self.allowed_ports and port not in self.allowed_ports:
            raise WebhookBlocked(f"port {port} is not one of the ports that this agent allows.")
        path = parts.path or "/"
        path += f"?{parts.query}" if parts.query else ""
        return WebhookTarget(
            host, port, is_secure=parts.scheme == "https", path=_percent_encode(path)
        )

    def reachable(self, host: str, addresses: list[IPAddress]) -> list[IPAddress]:
        """Return the host's addresses if all are allowed. Raises `WebhookBlocked`."""
        if self.allows_private:
            return addresses
        try:
            return ssrf.require_public(host, addresses)
        except ssrf.PrivateAddress:
            raise WebhookBlocked(f"{host} is on this machine or on a private network.") from None


def validate(url: str, policy: WebhookPolicy, owner_id: UUID | None = None) -> str:
    """Validate the URL of a webhook, of an organization if given. Raises `WebhookBlocked`.

    Resolves the host, so it must run in a thread. Each delivery repeats the checks, so while other
    threads wait for name servers, the host of this webhook is not resolved now: a tenant whose name
    server does not answer would take all threads of the process.
    """
    target = policy.parse_target(url)
    if target.is_own:
        return url
    if (address := resolution.parse_address(target.host)) is not None:
        policy.reachable(target.host, [address])
    elif _validations.acquire(blocking=False):
        try:
            policy.reachable(target.host, resolution.resolve(target.host, owner_id))
        except ssrf.ResolutionFailed:
            raise WebhookBlocked(f"the host {target.host} cannot be resolved.") from None
        except NotStarted:
            pass
        finally:
            _validations.release()
    return url


_MAX_VALIDATIONS = 2
"""Threads of a process that wait for name servers."""
_validations = threading.BoundedSemaphore(_MAX_VALIDATIONS)


def _normalize_host(name: str) -> str:
    if (address := resolution.parse_address(name)) is not None:
        return str(address)
    try:
        host = name.rstrip(".").encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not host or "%" in host:
        raise WebhookBlocked("the address has no valid host.")
    return host


def _matches_domain(host: str, rule: str) -> bool:
    return host.endswith(rule[1:]) if rule.startswith("*.") else host == rule


def _percent_encode(text: str) -> str:
    """Percent-encode all characters outside of ASCII."""
    return "".join(
        c if c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text
    )
