"""Allowlists of the operator's configuration that sandboxed code may read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .policy import TEMPORARY, Bind

_CERTIFICATE_NAMES = frozenset(
    (
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"),
    )
)
_INSTALLER_NAMES = _CERTIFICATE_NAMES | frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("PIP_CERT", "PIP_CONFIG_FILE", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL"),
        *("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_TRUSTED_HOST"),
        *("UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_EXCLUDE_NEWER", "UV_EXTRA_INDEX_URL"),
        *("UV_FIND_LINKS", "UV_HTTP_TIMEOUT", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL"),
        *("UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_NO_INDEX", "UV_OFFLINE", "UV_SYSTEM_CERTS"),
    )
)
_SYSTEM_CONFIGURATION = (Path("/etc/pip.conf"), Path("/etc/uv"), Path("/etc/xdg/pip"))
_USER_CONFIGURATION = (".config/pip", ".config/uv", ".pip")
_LOCAL_PATH = re.compile(r"(?:file://)?(/[^\s\"',;\]]+)")


@dataclass(frozen=True, slots=True)
class HostAccess:
    """Environment and binds to merge into a policy."""

    env: dict[str, str] = field(default_factory=dict)
    read_only: tuple[Bind, ...] = ()


def certificate_access(environment: Mapping[str, str] | None = None) -> HostAccess:
    """Return the trusted CA certificates of this machine, for agents. They are not secret."""
    environment = os.environ if environment is None else environment
    env = {name: value for name, value in environment.items() if name in _CERTIFICATE_NAMES}
    paths = _named_paths(list(env.values()))
    return HostAccess(env, tuple(Bind(path.resolve(), path) for path in sorted(set(paths))))


def installer_access(environment: Mapping[str, str] | None = None) -> HostAccess:
    """Return the variables, configuration files and local indexes of pip and uv.

    Includes the files and folders that these reference, such as a local index or a CA bundle. For
    build steps only: the address of an index or proxy may have a password.
    """
    environment = os.environ if environment is None else environment
    env = {name: value for name, value in environment.items() if name in _INSTALLER_NAMES}
    home = Path(environment.get("HOME") or "/nonexistent")

    configuration = {path: path for path in _SYSTEM_CONFIGURATION}
    configuration |= {home / name: TEMPORARY / name for name in _USER_CONFIGURATION}
    texts = list(env.values())
    binds: dict[Path, Bind] = {}
    for source, target in configuration.items():
        if source.exists():
            binds[target] = Bind(source.resolve(), target)
            texts += _contents(source)
    for path in _named_paths(texts):
        binds.setdefault(path, Bind(path.resolve(), path))
    return HostAccess(env, tuple(binds.values()))


def _contents(path: Path) -> Iterator[str]:
    files = path.iterdir() if path.is_dir() else [path]
    for file in files:
        if file.is_file() and file.suffix in (".conf", ".toml", ".ini"):
            yield file.read_text(errors="replace")


def _named_paths(texts: list[str]) -> Iterator[Path]:
    for text in texts:
        for match in _LOCAL_PATH.findall(text):
            path = Path(match)
            # At least two levels, so that a mistake in a file does not expose a top-level folder.
            # /etc/ssl is in every sandbox already.
            if len(path.parts) > 2 and not path.is_relative_to("/etc/ssl") and path.exists():
                yield path
