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

DEFAULT_PATH = "langgraph.json"
OLDEST_PYTHON = (3, 11)

# Keys that describe the container of another builder; they change nothing about an environment
# made here, and the build log says so.
WITHOUT_EFFECT = {
    "api_version": "this platform has one Agent Server, its own",
    "image_distro": "no container image is built",
    "node_version": "graphs in Python need no Node",
}
NOT_YET = {
    "auth": "custom authentication",
    "base_image": "images of one's own",
    "checkpointer": "settings of the checkpointer; state is always kept by the platform",
    "dockerfile_lines": "lines for a Dockerfile",
    "encryption": "encryption handlers",
    "http": "custom routes and HTTP settings",
    "source": "builds from a uv workspace",
    "store": "search and expiry settings of the store",
    "ui": "generative UI components",
    "ui_config": "generative UI components",
    "webhooks": "rules for webhooks",
}
SUPPORTED = frozenset(
    {
        "$schema",
        "dependencies",
        "env",
        "graphs",
        "keep_pkg_tools",
        "pip_config_file",
        "pip_installer",
        "python_version",
    }
)
_JAVASCRIPT = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".tsx", ".jsx")
_GRAPH_ID = re.compile(r"[^\x00-\x1f/]{1,255}")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ADDRESS = re.compile(r"(?:git\+)?[a-z]+://\S+", re.IGNORECASE)


class ConfigError(Exception):
    """What is wrong with a `langgraph.json`, for its author."""


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
    _refuse_unknown(raw, path)
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
        notes=[*_notes(raw), *_env_notes(raw, folder, kind)],
    )


def _object(text: str, path: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must be a JSON object.")
    return raw


def _refuse_unknown(raw: dict[str, Any], path: str) -> None:
    for name in sorted(raw):
        if name in NOT_YET and raw[name] not in (None, {}, [], ""):
            raise ConfigError(
                f"{path} has `{name}`, which is not supported yet ({NOT_YET[name]}). The build"
                " stops here so that the agent does not run without it."
            )
        if name not in SUPPORTED and name not in WITHOUT_EFFECT and name not in NOT_YET:
            raise ConfigError(f"{path} has the key `{name}`, which is not known.")


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
        _check_target(graph_id, target, folder, kind)
        targets[graph_id] = target
        if isinstance(entry, dict):
            if unknown := sorted(entry.keys() - {"path", "description"}):
                raise ConfigError(f"`graphs`: {graph_id} has the key `{unknown[0]}`, not known.")
            if isinstance(entry.get("description"), str):
                descriptions[graph_id] = entry["description"]
    return targets, descriptions


def _check_target(graph_id: str, target: str, folder: str, kind: Callable[[str], str]) -> None:
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ConfigError(
            f"`graphs`: {graph_id} is `{target}`; it must be `./file.py:name` or"
            " `package.module:name`."
        )
    if place.endswith(_JAVASCRIPT):
        raise ConfigError(
            f"`graphs`: {graph_id} is JavaScript ({place}); only Python is supported yet."
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"`graphs`: {graph_id}: `{name}` cannot be the name of a Python object.")
    is_file = "/" in place or place.endswith(".py")
    if not is_file:
        if not all(part.isidentifier() for part in place.split(".")):
            raise ConfigError(f"`graphs`: {graph_id}: `{place}` is neither a file nor a module.")
        return
    if kind(_below_root(folder, place)) not in ("file", "link"):
        raise ConfigError(f"`graphs`: {graph_id}: there is no file {place} in the repository.")


def _dependencies(
    raw: dict[str, Any], folder: str, kind: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    entries = raw.get("dependencies")
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


def _notes(raw: dict[str, Any]) -> list[str]:
    return [
        f"`{name}` has no effect here: {why}."
        for name, why in WITHOUT_EFFECT.items()
        if raw.get(name) is not None
    ]


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
