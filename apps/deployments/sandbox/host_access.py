"""Allowlists of the operator's configuration that sandboxed code may read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .policy import Bind

_CERTIFICATE_NAMES = frozenset(
    (
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"),
    )
)
PROXY_NAMES = frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    )
)
_LOCAL_PATH = re.compile(r"(?:file://)?(/[^\s\"',;\]]+)")


@dataclass(frozen=True, slots=True)
class HostAccess:
    """Environment and binds to merge into a policy."""

    env: dict[str, str] = field(default_factory=dict)
    read_only: tuple[Bind, ...] = ()


def certificate_access(environment: Mapping[str, str] | None = None) -> HostAccess:
    """Return the trusted CA certificates of this machine. They are not secret."""
    environment = os.environ if environment is None else environment
    env = {name: value for name, value in environment.items() if name in _CERTIFICATE_NAMES}
    return HostAccess(env, tuple(named_binds(env.values())))


def network_access(environment: Mapping[str, str] | None = None) -> HostAccess:
    """Return the certificates and the operator's proxy, for build steps.

    In a sandbox with a network of its own, the variables of its own proxy replace the latter.
    """
    environment = os.environ if environment is None else environment
    certificates = certificate_access(environment)
    proxies = {name: value for name, value in environment.items() if name in PROXY_NAMES}
    return HostAccess(certificates.env | proxies, certificates.read_only)


def named_binds(texts: Iterable[str]) -> Iterator[Bind]:
    """Yield binds of the files and folders that the texts name, such as a local package index."""
    for path in sorted({path for text in texts for path in _named_paths(text)}):
        yield Bind(path.resolve(), path)


def _named_paths(text: str) -> Iterator[Path]:
    for match in _LOCAL_PATH.findall(text):
        path = Path(match)
        # At least two levels, so that a mistake in a file does not expose a top-level folder.
        # /etc/ssl is in every sandbox already.
        if len(path.parts) > 2 and not path.is_relative_to("/etc/ssl") and path.exists():
            yield path
