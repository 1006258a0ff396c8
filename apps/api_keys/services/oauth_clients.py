"""Clients that register themselves (RFC 7591): their id is their signed metadata.

They have no secret: PKCE and the redirect address tell the client that gets a code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from django.core import signing

from apps.api_keys import errors

MAX_NAME_LENGTH = 100
MAX_REDIRECT_URIS = 5
MAX_URI_LENGTH = 300
_SALT = "api_keys.oauth_client"
_URI_CHARACTERS = re.compile(r"[!#-;=?-\[\]_a-z~%]+")
"""Those of RFC 3986."""
_AUTHORITY = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]+)?", re.IGNORECASE)
"""Without characters that separate sources of a content security policy."""
_LOOPBACK_HOSTS = {"localhost", "127.0.0.1", "::1"}
_PRIVATE_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,39}")
_BROWSER_SCHEMES = frozenset(
    {
        *("about", "blob", "chrome", "chrome-extension", "content", "data", "file", "filesystem"),
        *("ftp", "http", "https", "intent", "jar", "javascript", "mailto", "moz-extension"),
        *("resource", "sms", "tel", "vbscript", "view-source", "ws", "wss"),
    }
)
"""Schemes that a browser or system handles itself, so no application can have one for itself."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """What a client says of itself, unverified."""

    stored_id: str
    """A digest of its id, for the tables."""
    name: str
    redirect_uris: tuple[str, ...]

    def allows(self, redirect_uri: str) -> bool:
        """Whether the address is registered; a loopback address may have any port (RFC 8252)."""
        given = _comparable(redirect_uri)
        return given is not None and given in map(_comparable, self.redirect_uris)


def register_client(name: str, redirect_uris: Sequence[str]) -> str:
    """Return the id of the client. Raises `InvalidRedirectUri`."""
    if not 1 <= len(redirect_uris) <= MAX_REDIRECT_URIS:
        raise errors.InvalidRedirectUri(f"`redirect_uris` must have 1 to {MAX_REDIRECT_URIS}.")
    if any(_comparable(uri) is None for uri in redirect_uris):
        raise errors.InvalidRedirectUri
    return signing.dumps([name, list(redirect_uris)], salt=_SALT, compress=True)


def find_client(client_id: str) -> OAuthClient:
    """Raises `InvalidClient` for an id that this installation has not signed."""
    try:
        name, redirect_uris = signing.loads(client_id, salt=_SALT)
    except signing.BadSignature:
        raise errors.InvalidClient from None
    stored_id = f"sha256:{hashlib.sha256(client_id.encode()).hexdigest()}"
    return OAuthClient(stored_id, name, tuple(redirect_uris))


def redirect_source(redirect_uri: str) -> str:
    """The address as a source of a content security policy, for the redirect of a form."""
    parts = urlsplit(redirect_uri)
    # The policy knows neither IPv6 addresses nor hosts of private schemes.
    if parts.scheme not in {"http", "https"} or ":" in (parts.hostname or ""):
        return f"{parts.scheme}:"
    return f"{parts.scheme}://{parts.netloc}"


def _comparable(uri: str) -> str | None:
    """The address without the port of this machine; None if a client may not have it.

    A client has an `https` address, one of this machine, or one of its own scheme.
    """
    if len(uri) > MAX_URI_LENGTH or not _URI_CHARACTERS.fullmatch(uri.lower()):
        return None
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    if "#" in uri or "@" in parts.netloc or uri.partition(":")[0] != parts.scheme:
        return None
    is_web = parts.scheme in {"http", "https"}
    if is_web and not _AUTHORITY.fullmatch(parts.netloc):
        return None
    if parts.scheme == "https":
        return uri
    if parts.scheme == "http":
        is_loopback = parts.hostname in _LOOPBACK_HOSTS
        return _without_port(parts, port) if is_loopback else None
    is_private = _PRIVATE_SCHEME.fullmatch(parts.scheme) and parts.scheme not in _BROWSER_SCHEMES
    return uri if is_private and (parts.netloc or parts.path) else None


def _without_port(parts: SplitResult, port: int | None) -> str:
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    return parts._replace(netloc=host).geturl()
