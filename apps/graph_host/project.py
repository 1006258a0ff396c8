"""A project as described by its `langgraph.json`: import path, environment variables, graphs."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_TAIL_FRAMES = 6


class ProjectError(Exception):
    """An error of the project; the message is for its author."""


class Target(NamedTuple):
    """A reference to an object: `./file.py:name` or `package.module:name`."""

    module: str
    name: str

    @classmethod
    def parse(cls, text: str, what: str) -> Target:
        module, colon, name = text.rpartition(":")
        if not colon or not module or not name:
            raise ProjectError(
                f"{what} is `{text}`; it must be `./file.py:name` or `package.module:name`."
            )
        return cls(module, name)

    @property
    def is_file(self) -> bool:
        return "/" in self.module or self.module.endswith((".py", ".ts", ".js", ".mts", ".mjs"))


class Project:
    """The project in a folder."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config

    @classmethod
    def read(cls, path: Path) -> Project:
        """Read `langgraph.json`. Raises `ProjectError`."""
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ProjectError(f"There is no `{path.name}`.") from None
        except (OSError, ValueError) as error:
            raise ProjectError(f"`{path.name}` cannot be read: {error}") from None
        if not isinstance(config, dict) or not isinstance(config.get("graphs"), dict):
            raise ProjectError(f"`{path.name}` must be an object with an object `graphs`.")
        return cls(path.resolve().parent, config)

    def prepare(self) -> None:
        """Set working directory, import path and environment variables of this process."""
        os.chdir(self.folder)
        for dependency in self.config.get("dependencies") or ["."]:
            if isinstance(dependency, str) and dependency.startswith("."):
                _put_on_path((self.folder / dependency).resolve())
        env = self.config.get("env")
        if isinstance(env, dict):
            variables = {str(name): str(value) for name, value in env.items()}
        elif isinstance(env, str):
            variables = _read_variables(self.folder / env)
        else:
            variables = {}
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        if level := os.environ.get("LOG_LEVEL"):
            logging.basicConfig(level=level.upper())

    @property
    def graphs(self) -> dict[str, tuple[str, str | None]]:
        """Target and description of every graph."""
        graphs: dict[str, tuple[str, str | None]] = {}
        for graph_id, entry in self.config["graphs"].items():
            if isinstance(entry, str):
                graphs[graph_id] = (entry, None)
            elif isinstance(entry, dict) and isinstance(entry.get("path"), str):
                graphs[graph_id] = (entry["path"], entry.get("description"))
            else:
                raise ProjectError(
                    f"Graph `{graph_id}` must be a text or an object with `path` in langgraph.json."
                )
        return graphs

    def load(self, text: str, what: str) -> Any:
        """Load the object of a target. The message of a `ProjectError` ends with the traceback."""
        target = Target.parse(text, what)
        try:
            module = self._module(target, what)
        except ProjectError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise ProjectError(
                f"{what} (`{text}`) could not be imported: {type(error).__name__}: {error}\n"
                f"{_tail(error, self.folder)}"
            ) from error
        value: Any = module
        for part in target.name.split("."):
            if not hasattr(value, part):
                names = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
                raise ProjectError(
                    f"{what}: `{target.module}` has no `{target.name}`. It defines: {names}"
                )
            value = getattr(value, part)
        return value

    def _module(self, target: Target, what: str) -> ModuleType:
        if not target.is_file:
            return importlib.import_module(target.module)
        path = (self.folder / target.module).resolve()
        if not path.is_relative_to(self.folder):
            raise ProjectError(f"{what}: `{target.module}` is outside the repository.")
        if not path.is_file():
            raise ProjectError(f"{what}: there is no file `{target.module}` in the repository.")
        if path.suffix != ".py":
            raise ProjectError(
                f"{what}: `{target.module}` is not Python; only Python is supported."
            )
        return _module_of_file(path, self.folder)


def _module_of_file(path: Path, root: Path) -> ModuleType:
    """Import a file, as a module of its package if it is in one, for relative imports."""
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder != root.parent:
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) > 1 and all(name.isidentifier() for name in names):
        _put_on_path(folder)
        return importlib.import_module(".".join(names))
    # A stable, unique name: checkpoints refer to classes by module, and files may share a stem.
    digest = hashlib.sha256(str(path.relative_to(root)).encode()).hexdigest()[:8]
    name = f"{path.stem}_{digest}" if path.stem.isidentifier() else f"graph_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _put_on_path(path.parent, last=True)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _put_on_path(folder: Path, *, last: bool = False) -> None:
    text = str(folder)
    if text in sys.path:
        return
    if last:
        sys.path.append(text)
    else:
        sys.path.insert(0, text)


def _tail(error: BaseException, root: Path) -> str:
    """The end of a traceback, without frames of this program and of the import system.

    Paths are relative to the repository and the environment.
    """
    mine = str(Path(__file__).parent)
    importing = importlib.__file__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((mine, importing, "<frozen importlib"))
    ]
    lines = traceback.format_list(frames[-_TAIL_FRAMES:])
    lines += traceback.format_exception_only(error)
    text = "".join(lines).rstrip()
    return text.replace(f"{root}{os.sep}", "").replace(f"{sys.prefix}{os.sep}", "")


def _read_variables(path: Path) -> dict[str, str]:
    """The variables of a .env file; empty if the file is missing."""
    try:
        return variables_in(path.read_text(encoding="utf-8"))
    except OSError:
        return {}


def variables_in(text: str) -> dict[str, str]:
    """The `NAME=value` lines of a .env file."""
    variables = {}
    for line in text.splitlines():
        entry = line.strip().removeprefix("export ").lstrip()
        name, equals, value = entry.partition("=")
        if not equals or entry.startswith("#"):
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        variables[name.strip()] = value
    return variables
