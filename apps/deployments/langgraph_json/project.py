"""`langgraph.json`: what of it is supported, and what is wrong with one in its author's words.

A key is honoured, or the build refuses it by name. None is passed over in silence.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from apps.deployments.langgraph_json import keys, sections
from apps.deployments.langgraph_json.errors import ConfigError
from apps.deployments.langgraph_json.sections import Sections

DEFAULT_PATH = "langgraph.json"
OLDEST_PYTHON = (3, 11)

_JAVASCRIPT = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".tsx", ".jsx")
_GRAPH_ID = re.compile(r"[^\x00-\x1f/]{1,255}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ADDRESS = re.compile(r"(?:git\+)?[a-z]+://\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UvSource:
    """A workspace of uv's, installed as its lock file says."""

    root: str
    package: str | None


@dataclass(frozen=True, slots=True)
class Project:
    """A `langgraph.json` that can be built. Paths are relative to the repository's root."""

    raw: dict[str, Any]
    path: str
    graphs: dict[str, str]
    """The target of each graph: `./file.py:name` or `package.module:name`."""
    descriptions: dict[str, str]
    folders: list[str]
    """Local dependencies."""
    packages: list[str]
    """Requirements for the installer."""
    python_version: str | None
    installer: str
    pip_config_file: str | None
    package_tools: bool
    source: UvSource | None
    sections: Sections
    """`http`, `auth`, `store`, `checkpointer` and `webhooks`, typed."""
    notes: list[str] = field(default_factory=list)
    """What the author should know although nothing is wrong."""

    @property
    def folder(self) -> str:
        """Where `langgraph.json` is, relative to the repository's root; empty for the root."""
        return posixpath.dirname(self.path)

    def place(self, path: str) -> str:
        """A path written in the file, relative to the repository's root."""
        return _below_root(self.folder, path)


def parse(text: str, *, path: str, kind: Callable[[str], str]) -> Project:
    """Read and check the text of the file at `path`.

    `kind` answers what is at a place of the repository: `file`, `folder`, `link` or `nothing`.
    Raises `ConfigError`.
    """
    raw = _object(text, path)
    keys.check(raw, path)
    folder = posixpath.dirname(path)
    graphs, descriptions = _graphs(raw, folder, kind)
    folders, packages = _dependencies(raw, folder, kind)
    pip_config = _text(raw, "pip_config_file")
    if pip_config is not None and kind(_below_root(folder, pip_config)) == "nothing":
        raise ConfigError(f"`pip_config_file` is {pip_config}, which is not in the repository.")
    return Project(
        raw=raw,
        path=path,
        graphs=graphs,
        descriptions=descriptions,
        folders=folders,
        packages=packages,
        python_version=_python_version(raw),
        installer=_installer(raw, pip_config),
        pip_config_file=pip_config,
        package_tools=_package_tools(raw),
        source=_source(raw, folder, kind),
        sections=_sections(raw, folder, kind),
        notes=[*keys.notes(raw), *_env_notes(raw, folder, kind)],
    )


def _object(text: str, path: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must be a JSON object.")
    return raw


def _graphs(
    raw: dict[str, Any], folder: str, kind: Callable[[str], str]
) -> tuple[dict[str, str], dict[str, str]]:
    entries = raw.get("graphs")
    if not isinstance(entries, dict) or not entries:
        raise ConfigError(
            '`graphs` must name at least one graph, for example {"agent": "./agent.py:graph"}.'
        )
    targets, descriptions = {}, {}
    for graph_id, entry in entries.items():
        if not _GRAPH_ID.fullmatch(graph_id):
            raise ConfigError(f"`graphs`: {graph_id!r} cannot be the name of a graph.")
        target = entry.get("path") if isinstance(entry, dict) else entry
        if not isinstance(target, str):
            raise ConfigError(
                f"`graphs`: {graph_id} must be a text such as `./agent.py:graph`, or an object with"
                " `path`."
            )
        _check_target(f"`graphs`: {graph_id}", target, folder, kind)
        targets[graph_id] = target
        if isinstance(entry, dict):
            if unknown := sorted(entry.keys() - {"path", "description"}):
                raise ConfigError(f"`graphs`: {graph_id} has the key `{unknown[0]}`, not known.")
            if isinstance(entry.get("description"), str):
                descriptions[graph_id] = entry["description"]
    return targets, descriptions


def _check_target(what: str, target: str, folder: str, kind: Callable[[str], str]) -> None:
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ConfigError(
            f"{what} is `{target}`; it must be `./file.py:name` or `package.module:name`."
        )
    if place.endswith(_JAVASCRIPT):
        raise ConfigError(f"{what} is JavaScript ({place}); only Python is supported.")
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{what}: `{name}` cannot be the name of a Python object.")
    is_file = "/" in place or place.endswith(".py")
    if not is_file:
        if not all(part.isidentifier() for part in place.split(".")):
            raise ConfigError(f"{what}: `{place}` is neither a file nor a module.")
        return
    if kind(_below_root(folder, place)) not in ("file", "link"):
        raise ConfigError(f"{what}: there is no file {place} in the repository.")


def _sections(raw: dict[str, Any], folder: str, kind: Callable[[str], str]) -> Sections:
    found = sections.read(raw)
    if found.auth is not None:
        _check_target("`auth.path`", found.auth.path, folder, kind)
    if found.http.app is not None:
        _check_target("`http.app`", found.http.app, folder, kind)
    index = found.store.index
    if index is not None and ("/" in index.embed.partition(":")[0] or ".py:" in index.embed):
        _check_target("`store.index.embed`", index.embed, folder, kind)
    return found


def _source(raw: dict[str, Any], folder: str, kind: Callable[[str], str]) -> UvSource | None:
    given = raw.get("source")
    if not given:
        return None
    if not isinstance(given, dict) or given.get("kind") != "uv":
        raise ConfigError("`source` must be an object whose `kind` is uv.")
    if unknown := sorted(given.keys() - {"kind", "root", "package"}):
        raise ConfigError(f"`source` has the key `{unknown[0]}`, not known.")
    root, package = given.get("root", "."), given.get("package")
    if not isinstance(root, str) or not (package is None or isinstance(package, str)):
        raise ConfigError("`source`: `root` and `package` must be texts.")
    if package is not None and not _PACKAGE.fullmatch(package):
        raise ConfigError(f"`source`: {package!r} cannot be the name of a package.")
    for name in ("pyproject.toml", "uv.lock"):
        if kind(_below_root(folder, posixpath.join(root, name))) not in ("file", "link"):
            raise ConfigError(f"`source`: there is no {name} in {root}.")
    return UvSource(_below_root(folder, root), package)


def _dependencies(
    raw: dict[str, Any], folder: str, kind: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    entries = raw.get("dependencies", [])
    if not entries and raw.get("source"):
        return [], []
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            '`dependencies` must be a list with at least one entry, for example ["."] for the'
            " project beside langgraph.json."
        )
    folders, packages = [], []
    for entry in entries:
        if not isinstance(entry, str) or not entry.strip():
            raise ConfigError(f"`dependencies`: {entry!r} is not a text.")
        if entry.startswith("."):
            if kind(_below_root(folder, entry)) not in ("folder", "link"):
                raise ConfigError(f"`dependencies`: there is no folder {entry} in the repository.")
            folders.append(entry)
        else:
            packages.append(_requirement(entry.strip()))
    return folders, packages


def _requirement(text: str) -> str:
    if _ADDRESS.fullmatch(text):
        authority = text.split("://", 1)[1].split("/", 1)[0]
        if "@" in authority and not text.startswith("git+ssh://"):
            raise ConfigError("`dependencies`: an address with a user name or token is not taken.")
        return text
    try:
        Requirement(text)
    except InvalidRequirement:
        raise ConfigError(
            f"`dependencies`: {text!r} is neither a local folder (`./folder`) nor a package."
        ) from None
    return text


def _python_version(raw: dict[str, Any]) -> str | None:
    version = raw.get("python_version")
    if version is None:
        return None
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        raise ConfigError(f'`python_version` must be a text like "3.12", not {version!r}.')
    if (int(found[1]), int(found[2])) < OLDEST_PYTHON:
        raise ConfigError(f"`python_version` is {version}; the oldest that is supported is 3.11.")
    return str(version)


def _installer(raw: dict[str, Any], pip_config: str | None) -> str:
    installer = raw.get("pip_installer", "auto")
    if installer not in ("auto", "pip", "uv"):
        raise ConfigError("`pip_installer` must be auto, pip or uv.")
    if pip_config is None:
        return "pip" if installer == "pip" else "uv"
    if installer == "uv":
        raise ConfigError("`pip_config_file` is read by pip only, and `pip_installer` is uv.")
    return "pip"


def _package_tools(raw: dict[str, Any]) -> bool:
    tools = raw.get("keep_pkg_tools", False)
    known = {"pip", "setuptools", "wheel"}
    if not isinstance(tools, bool) and not (isinstance(tools, list) and set(tools) <= known):
        raise ConfigError(
            "`keep_pkg_tools` must be true, false or a list of pip, setuptools, wheel."
        )
    return bool(tools)


def _text(raw: dict[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a text.")
    return value or None


def _env_notes(raw: dict[str, Any], folder: str, kind: Callable[[str], str]) -> list[str]:
    env = raw.get("env")
    if env is None or env == "":
        return []
    if isinstance(env, dict):
        for name, value in env.items():
            if not isinstance(value, str | int | float | bool):
                raise ConfigError(f"`env`: the value of {name} must be a text.")
        return []
    if not isinstance(env, str):
        raise ConfigError("`env` must be an object of variables or the path of a .env file.")
    if kind(_below_root(folder, env)) == "nothing":
        note = (
            f"`env` names {env}, which is not in the repository: only the deployment has variables."
        )
        return [note]
    return []


def _below_root(folder: str, path: str) -> str:
    """The normal form of a path written beside `langgraph.json`; refuses what leaves the source."""
    steps = posixpath.normpath(posixpath.join(folder, path))
    if path.startswith("/") or steps == ".." or steps.startswith("../"):
        raise ConfigError(f"{path} is outside the repository.")
    return "" if steps == "." else steps
