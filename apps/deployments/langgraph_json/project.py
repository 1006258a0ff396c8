"""Parse `langgraph.json` into a `ProjectConfig`, with error messages for its author."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from apps.deployments.langgraph_json import keys, sections
from apps.deployments.langgraph_json.keys import ConfigError
from apps.deployments.langgraph_json.sections import Sections

DEFAULT_PATH = "langgraph.json"
MIN_PYTHON = (3, 11)

_JAVASCRIPT = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".tsx", ".jsx")
_MAX_NAMED_VARIABLES = 20
_PACKAGING_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_PROJECT_FILES = (".txt", ".toml", ".cfg", ".lock", "setup.py")
_GRAPH_ID = re.compile(r"[^\x00-\x1f/]{1,255}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ADDRESS = re.compile(r"(?:git\+)?[a-z]+://\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UvSource:
    """A uv workspace, installed from its lock file."""

    root: str
    package: str | None


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A valid `langgraph.json`. Paths are relative to the repository's root."""

    raw: dict[str, Any]
    path: str
    graphs: dict[str, str]
    """The target of each graph: `./file.py:name` or `package.module:name`."""
    descriptions: dict[str, str]
    folders: list[str]
    """Local dependencies."""
    requirement_files: list[str]
    """Files with requirements that are listed themselves, not found in a folder."""
    packages: list[str]
    """Requirements for the installer."""
    python_version: str | None
    installer: str
    pip_config_file: str | None
    package_tools: bool
    source: UvSource | None
    sections: Sections
    """`http`, `auth`, `store` and the other sections, typed."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the build log."""

    @property
    def folder(self) -> str:
        """The folder of `langgraph.json`, relative to the repository's root; empty for the root."""
        return posixpath.dirname(self.path)

    def resolve(self, path: str) -> str:
        """Convert a path in `langgraph.json` to one relative to the repository's root."""
        return repository_path(self.folder, path)


def parse(text: str, *, path: str, file_type: Callable[[str], str]) -> ProjectConfig:
    """Parse and validate the text of the file at `path`.

    `file_type` returns the type of a path in the repository: `file`, `folder`, `link` or `missing`.
    Raises `ConfigError`.
    """
    raw = _parse_object(text, path)
    _check_language(raw)
    keys.check_keys(raw, path)
    folder = posixpath.dirname(path)
    graphs, descriptions = _parse_graphs(raw, folder, file_type)
    dependencies = _parse_dependencies(raw, folder, file_type)
    pip_config = _optional_text(raw, "pip_config_file")
    if pip_config is not None and file_type(repository_path(folder, pip_config)) == "missing":
        raise ConfigError(f"`pip_config_file` is {pip_config}, which is not in the repository.")
    return ProjectConfig(
        raw=raw,
        path=path,
        graphs=graphs,
        descriptions=descriptions,
        folders=dependencies.folders,
        requirement_files=dependencies.requirement_files,
        packages=dependencies.packages,
        python_version=_parse_python_version(raw),
        installer=_choose_installer(raw, pip_config),
        pip_config_file=pip_config,
        package_tools=_keeps_package_tools(raw),
        source=_parse_source(raw, folder, file_type),
        sections=_parse_sections(raw, graphs, folder, file_type),
        warnings=[*keys.ignored_key_warnings(raw), *_env_warnings(raw, folder, file_type)],
    )


def _parse_object(text: str, path: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must be a JSON object.")
    return raw


def _check_language(raw: dict[str, Any]) -> None:
    """Reject JavaScript before any key, since no change of keys would help."""
    graphs = raw.get("graphs")
    for graph_id, entry in graphs.items() if isinstance(graphs, dict) else ():
        target = entry.get("path") if isinstance(entry, dict) else entry
        if isinstance(target, str):
            _reject_javascript(f"`graphs`: {graph_id}", target.rpartition(":")[0])


def _reject_javascript(label: str, location: str) -> None:
    if location.endswith(_JAVASCRIPT):
        raise ConfigError(f"{label} is JavaScript ({location}); only Python is supported.")


def _parse_graphs(
    raw: dict[str, Any], folder: str, file_type: Callable[[str], str]
) -> tuple[dict[str, str], dict[str, str]]:
    entries = raw.get("graphs")
    if not isinstance(entries, dict) or not entries:
        raise ConfigError(
            '`graphs` must name at least one graph, for example {"agent": "./agent.py:graph"}.'
        )
    targets, descriptions = {}, {}
    for graph_id, entry in entries.items():
        if not _GRAPH_ID.fullmatch(graph_id):
            raise ConfigError(f"`graphs`: {graph_id!r} is not a valid graph name.")
        target = entry.get("path") if isinstance(entry, dict) else entry
        if not isinstance(target, str):
            raise ConfigError(
                f"`graphs`: {graph_id} must be a string such as `./agent.py:graph`, or an object"
                " with `path`."
            )
        _check_target(f"`graphs`: {graph_id}", target, folder, file_type)
        targets[graph_id] = target
        if isinstance(entry, dict):
            if unknown := sorted(entry.keys() - {"path", "description"}):
                raise ConfigError(f"`graphs`: {graph_id} has the unknown key `{unknown[0]}`.")
            if isinstance(entry.get("description"), str):
                descriptions[graph_id] = entry["description"]
    return targets, descriptions


def _check_target(label: str, target: str, folder: str, file_type: Callable[[str], str]) -> None:
    location, colon, name = target.rpartition(":")
    if not colon or not location or not name:
        raise ConfigError(
            f"{label} is `{target}`; it must be `./file.py:name` or `package.module:name`."
        )
    _reject_javascript(label, location)
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{label}: `{name}` is not a valid Python name.")
    is_file = "/" in location or location.endswith(".py")
    if not is_file:
        if not all(part.isidentifier() for part in location.split(".")):
            raise ConfigError(f"{label}: `{location}` is neither a file nor a module.")
        return
    if file_type(repository_path(folder, location)) not in ("file", "link"):
        raise ConfigError(f"{label}: there is no file {location} in the repository.")


def _parse_sections(
    raw: dict[str, Any],
    graphs: Collection[str],
    folder: str,
    file_type: Callable[[str], str],
) -> Sections:
    parsed = sections.parse_sections(raw)
    if unknown := sorted(parsed.mcp.graph_ids - set(graphs)):
        raise ConfigError(f"`mcp`: {unknown[0]} is not one of `graphs`.")
    if parsed.auth is not None:
        _check_target("`auth.path`", parsed.auth.path, folder, file_type)
    if parsed.http.app is not None:
        _check_target("`http.app`", parsed.http.app, folder, file_type)
    index = parsed.store.index
    if index is not None and ("/" in index.embed.partition(":")[0] or ".py:" in index.embed):
        _check_target("`store.index.embed`", index.embed, folder, file_type)
    return parsed


def _parse_source(
    raw: dict[str, Any], folder: str, file_type: Callable[[str], str]
) -> UvSource | None:
    source = raw.get("source")
    if not source:
        return None
    if not isinstance(source, dict) or source.get("kind") != "uv":
        raise ConfigError("`source` must be an object with `kind`: uv.")
    if unknown := sorted(source.keys() - {"kind", "root", "package"}):
        raise ConfigError(f"`source` has the unknown key `{unknown[0]}`.")
    root, package = source.get("root", "."), source.get("package")
    if not isinstance(root, str) or not (package is None or isinstance(package, str)):
        raise ConfigError("`source`: `root` and `package` must be strings.")
    if package is not None and not _PACKAGE.fullmatch(package):
        raise ConfigError(f"`source`: {package!r} is not a valid package name.")
    for name in ("pyproject.toml", "uv.lock"):
        if file_type(repository_path(folder, posixpath.join(root, name))) not in ("file", "link"):
            raise ConfigError(f"`source`: there is no {name} in {root}.")
    return UvSource(repository_path(folder, root), package)


@dataclass(slots=True)
class _Dependencies:
    folders: list[str] = field(default_factory=list)
    requirement_files: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def _parse_dependencies(
    raw: dict[str, Any], folder: str, file_type: Callable[[str], str]
) -> _Dependencies:
    entries = raw.get("dependencies", [])
    result = _Dependencies()
    if not entries and raw.get("source"):
        return result
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            '`dependencies` must be a list with at least one entry, for example ["."] for the'
            " project in the folder of langgraph.json."
        )
    for entry in entries:
        if not isinstance(entry, str) or not entry.strip():
            raise ConfigError(f"`dependencies`: {entry!r} must be a non-empty string.")
        if entry.startswith(".") or entry.endswith(_PROJECT_FILES):
            _add_local_dependency(result, entry, file_type(repository_path(folder, entry)))
        else:
            result.packages.append(_check_requirement(entry.strip()))
    return result


def _add_local_dependency(result: _Dependencies, entry: str, kind: str) -> None:
    """Add a folder of the repository, or a file that says what its folder needs."""
    name = posixpath.basename(entry)
    is_file = kind == "file" or (kind == "link" and entry.endswith(_PROJECT_FILES))
    if kind == "missing":
        # An installer would take a file's name for a package of the index, where any account may
        # publish.
        missing = "file" if entry.endswith(_PROJECT_FILES) else "folder"
        raise ConfigError(f"`dependencies`: there is no {missing} {entry} in the repository.")
    if not is_file:
        result.folders.append(entry)
    elif name in _PACKAGING_FILES:
        result.folders.append(posixpath.dirname(entry) or ".")
    elif name.endswith(".txt"):
        result.requirement_files.append(entry)
    else:
        raise ConfigError(
            f"`dependencies`: {entry} is a file; name its folder, for example `.`, whose"
            " pyproject.toml or requirements.txt is then installed."
        )


def _check_requirement(text: str) -> str:
    if _ADDRESS.fullmatch(text):
        authority = text.split("://", 1)[1].split("/", 1)[0]
        if "@" in authority and not text.startswith("git+ssh://"):
            raise ConfigError("`dependencies`: remove the user name or token from the address.")
        return text
    try:
        Requirement(text)
    except InvalidRequirement:
        raise ConfigError(
            f"`dependencies`: {text!r} is neither a local folder (`./folder`) nor a package."
        ) from None
    return text


def _parse_python_version(raw: dict[str, Any]) -> str | None:
    version = raw.get("python_version")
    if version is None:
        return None
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise ConfigError(f'`python_version` must be a string like "3.12", not {version!r}.')
    if (int(match[1]), int(match[2])) < MIN_PYTHON:
        raise ConfigError(f"`python_version` is {version}; the minimum is 3.11.")
    return str(version)


def _choose_installer(raw: dict[str, Any], pip_config: str | None) -> str:
    installer = raw.get("pip_installer", "auto")
    if installer not in ("auto", "pip", "uv"):
        raise ConfigError("`pip_installer` must be auto, pip or uv.")
    if pip_config is None:
        return "pip" if installer == "pip" else "uv"
    if installer == "uv":
        raise ConfigError("`pip_config_file` requires `pip_installer` pip or auto.")
    return "pip"


def _keeps_package_tools(raw: dict[str, Any]) -> bool:
    tools = raw.get("keep_pkg_tools", False)
    package_tools = {"pip", "setuptools", "wheel"}
    if not isinstance(tools, bool) and not (
        isinstance(tools, list) and set(tools) <= package_tools
    ):
        raise ConfigError(
            "`keep_pkg_tools` must be true, false or a list of pip, setuptools, wheel."
        )
    return bool(tools)


def _optional_text(raw: dict[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a string.")
    return value or None


def _env_warnings(raw: dict[str, Any], folder: str, file_type: Callable[[str], str]) -> list[str]:
    env = raw.get("env")
    if env is None or env == "":
        return []
    if isinstance(env, dict):
        for name, value in env.items():
            if not isinstance(value, str | int | float | bool):
                raise ConfigError(
                    f"`env`: the value of {name} must be a string, number or boolean."
                )
        return []
    if isinstance(env, list) and all(isinstance(name, str) for name in env):
        names = ", ".join(env[:_MAX_NAMED_VARIABLES])
        return [f"`env` lists names; the deployment's variables give their values: {names}."]
    if not isinstance(env, str):
        raise ConfigError("`env` must be an object of variables or the path of a .env file.")
    if file_type(repository_path(folder, env)) == "missing":
        return [f"`env` is {env}, which is not in the repository and therefore ignored."]
    return []


def repository_path(folder: str, path: str) -> str:
    """Return a path relative to the repository's root; reject a path outside the repository."""
    normalized = posixpath.normpath(posixpath.join(folder, path))
    if path.startswith("/") or normalized == ".." or normalized.startswith("../"):
        raise ConfigError(f"{path} is outside the repository.")
    return "" if normalized == "." else normalized
