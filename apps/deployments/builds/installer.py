"""The operator's configuration of pip and uv for build steps, without its passwords.

Build code can read everything that its installer reads. Therefore builds get copies with the
options that concern package indexes, and an index whose address has a password is at an address
inside the sandbox: the platform's proxy requests it with the password
(`sandbox/egress/package_index.py`).
"""

from __future__ import annotations

import base64
import configparser
import io
import json
import os
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from apps.deployments import sandbox
from apps.deployments.builds.build_context import BuildFailed
from apps.deployments.sandbox import Bind, LocalIndex

_VARIABLES = (
    *("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"),
    *("PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_TRUSTED_HOST"),
    *("UV_DEFAULT_INDEX", "UV_EXCLUDE_NEWER", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_HTTP_TIMEOUT", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL", "UV_INSECURE_HOST"),
    *("UV_NATIVE_TLS", "UV_NO_INDEX", "UV_OFFLINE", "UV_SYSTEM_CERTS"),
)
_PIP_OPTIONS = frozenset(
    (
        *("build-constraint", "cert", "constraint", "extra-index-url", "find-links", "index-url"),
        *("no-binary", "no-index", "only-binary", "pre", "prefer-binary", "require-hashes"),
        *("retries", "timeout", "trusted-host", "uploaded-prior-to", "use-deprecated"),
        "use-feature",
    )
)
_UV_OPTIONS = frozenset(
    (
        *("allow-insecure-host", "concurrent-builds", "concurrent-downloads", "config-settings"),
        *("constraint-dependencies", "exclude-newer", "exclude-newer-package", "extra-index-url"),
        *("find-links", "fork-strategy", "index", "index-strategy", "index-url", "native-tls"),
        *("no-binary", "no-binary-package", "no-build", "no-build-isolation", "no-build-package"),
        *("no-index", "offline", "override-dependencies", "prerelease", "resolution"),
        *("only-binary", "system-certs"),
    )
)
_URL_WITH_USER = re.compile(r"(https?)://([^\s/]*)@([^\s/?#\"',;\]]+)", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s\"',;\]]+", re.IGNORECASE)
_Clean = Callable[[str], str]
_FIRST_PORT, _PORTS = 40_000, 20_000


@dataclass(frozen=True, slots=True)
class InstallerConfig:
    """What a build step gets to install packages."""

    env: dict[str, str]
    files: dict[str, str]
    """Texts of configuration files by their paths below a folder, see `write`."""
    read_only: tuple[Bind, ...]
    """CA bundles and local indexes that the configuration names."""
    urls: tuple[str, ...]
    """The addresses in the configuration."""
    indexes: tuple[LocalIndex, ...]

    def write(self, folder: Path) -> dict[str, str]:
        """Write the files and return the variables by which pip and uv find them."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = {"XDG_CONFIG_HOME": f"{folder}/user", "XDG_CONFIG_DIRS": f"{folder}/system"}
        if "uv.toml" in self.files:
            result["UV_CONFIG_FILE"] = f"{folder}/uv.toml"
        return result


def read_config(
    environment: Mapping[str, str] | None = None, *, hides_passwords: bool
) -> InstallerConfig:
    """Read the variables and files of the operator.

    Without `hides_passwords`, for builds that share the machine's network, passwords remain.
    Raises `BuildFailed` for a file with a syntax error.
    """
    environment = os.environ if environment is None else environment
    indexes: dict[str, LocalIndex] = {}
    texts: list[str] = []

    def clean(text: str) -> str:
        texts.append(text)
        if not hides_passwords:
            return text
        return _URL_WITH_USER.sub(lambda match: _local_address(match, indexes), text)

    network = sandbox.network_access(environment)
    env = {name: clean(environment[name]) for name in _VARIABLES if name in environment}
    files = {
        name: _clean_pip(paths, clean)
        for name, paths in _pip_files(environment).items()
        if any(path.is_file() for path in paths)
    } | {
        name: _clean_uv(path, clean)
        for name, path in _uv_files(environment).items()
        if path.is_file()
    }
    cleaned = [*env.values(), *files.values()]
    binds = {bind.target: bind for bind in network.read_only}
    binds |= {bind.target: bind for bind in sandbox.named_binds(cleaned)}
    urls = [url for text in texts for url in _URL.findall(_URL_WITH_USER.sub(r"\1://\3", text))]
    # The sandbox's own proxy replaces that of the operator, which may have a password.
    hidden = sandbox.PROXY_NAMES if hides_passwords else frozenset[str]()
    network_env = {name: value for name, value in network.env.items() if name not in hidden}
    return InstallerConfig(
        {**network_env, **env},
        files,
        tuple(binds.values()),
        tuple(dict.fromkeys(urls)),
        tuple(indexes.values()),
    )


def _local_address(match: re.Match[str], indexes: dict[str, LocalIndex]) -> str:
    """Return the address inside that stands for a server and user; the path follows it."""
    scheme, userinfo, authority = match[1].lower(), match[2], match[3].lower()
    key = f"{scheme}://{userinfo}@{authority}"
    if key not in indexes:
        user, _, password = userinfo.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        # The installers cache by address, so it depends on the server and user alone.
        port = _FIRST_PORT + zlib.crc32(f"{scheme}://{user}@{authority}".encode()) % _PORTS
        while port in {index.port for index in indexes.values()}:
            port += 1
        indexes[key] = LocalIndex(
            port=port,
            origin=f"{scheme}://{authority}",
            authorization=f"Basic {base64.b64encode(pair).decode()}",
        )
    return indexes[key].url


def _pip_files(environment: Mapping[str, str]) -> dict[str, list[Path]]:
    home = Path(environment.get("HOME") or "/nonexistent")
    named = environment.get("PIP_CONFIG_FILE")
    user = [home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    if named is not None:
        user.append(Path(named))
    return {
        "system/pip/pip.conf": [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")],
        "user/pip/pip.conf": user if named != os.devnull else [],
    }


def _uv_files(environment: Mapping[str, str]) -> dict[str, Path]:
    if named := environment.get("UV_CONFIG_FILE"):
        return {"uv.toml": Path(named)}
    home = Path(environment.get("HOME") or "/nonexistent")
    return {
        "system/uv/uv.toml": Path("/etc/uv/uv.toml"),
        "user/uv/uv.toml": home / ".config/uv/uv.toml",
    }


def _clean_pip(paths: list[Path], clean: _Clean) -> str:
    """Merge the files; the last one with an option decides."""
    result = configparser.RawConfigParser()
    for path in paths:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, OSError, UnicodeDecodeError):
            raise BuildFailed(f"The operator's {path.name} cannot be read.") from None
        for section in parser.sections():
            for name, value in parser.items(section):
                option = name.removeprefix("--").replace("_", "-")
                if option in _PIP_OPTIONS:
                    if not result.has_section(section):
                        result.add_section(section)
                    result.set(section, option, clean(value))
    text = io.StringIO()
    result.write(text)
    return text.getvalue()


def _clean_uv(path: Path, clean: _Clean) -> str:
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError):
        raise BuildFailed(f"The operator's {path.name} cannot be read.") from None
    return "".join(f"{line}\n" for line in _toml_lines(table, clean))


def _toml_lines(table: dict[str, Any], clean: _Clean) -> Iterator[str]:
    for name, value in table.items():
        if name == "pip":
            inner = {key: option for key, option in value.items() if key in _UV_OPTIONS}
            yield f"pip = {_toml_value(inner, clean)}"
        elif name in _UV_OPTIONS:
            yield f"{name} = {_toml_value(value, clean)}"


def _toml_value(value: Any, clean: _Clean) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(k)} = {_toml_value(v, clean)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item, clean) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)
