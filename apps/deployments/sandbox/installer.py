"""What a build step may know of the operator's package index: deliberate, and for builds only.

An agent never gets this: an index address may carry a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .policy import TEMPORARY, Bind

_NAMES = frozenset(
    (
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"),
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
class InstallerAccess:
    """To be merged into the policy of a build step."""

    env: dict[str, str] = field(default_factory=dict)
    read_only: tuple[Bind, ...] = ()


def installer_access(environment: Mapping[str, str] | None = None) -> InstallerAccess:
    """The variables, configuration files and local indexes with which pip and uv work here.

    Folders and files that those name (a local index, a bundle of certificates) come along.
    """
    environment = os.environ if environment is None else environment
    env = {name: value for name, value in environment.items() if name in _NAMES}
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
    return InstallerAccess(env, tuple(binds.values()))


def _contents(path: Path) -> Iterator[str]:
    files = path.iterdir() if path.is_dir() else [path]
    for file in files:
        if file.is_file() and file.suffix in (".conf", ".toml", ".ini"):
            yield file.read_text(errors="replace")


def _named_paths(texts: list[str]) -> Iterator[Path]:
    for text in texts:
        for match in _LOCAL_PATH.findall(text):
            path = Path(match)
            # Two steps at least, so that no slip in a file shows a whole top folder; what every
            # sandbox has already is left out.
            if len(path.parts) > 2 and not path.is_relative_to("/etc/ssl") and path.exists():
                yield path
