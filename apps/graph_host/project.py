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
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_TAIL_FRAMES = 6


class ProjectError(Exception):
    """An error of the project; the message is for its author."""


class ObjectReference(NamedTuple):
    """A reference to an object: `./file.py:name` or `package.module:name`."""

    module: str
    name: str

    @classmethod
    def parse(cls, text: str, source: str) -> ObjectReference:
        module, colon, name = text.rpartition(":")
        if not colon or not module or not name:
            raise ProjectError(
                f"{source} is `{text}`; it must be `./file.py:name` or `package.module:name`."
            )
        return cls(module, name)

    @property
    def is_file(self) -> bool:
        return "/" in self.module or self.module.endswith((".py", ".ts", ".js", ".mts", ".mjs"))


class AgentProject:
    """The project in a folder of a repository."""

    def __init__(self, folder: Path, config: dict[str, Any], *, root: Path | None = None) -> None:
        self.folder = folder
        self.config = config
        self.root = root or folder
        """The repository's folder; targets outside it are refused."""

    @classmethod
    def read(cls, path: Path) -> AgentProject:
        """Read the `langgraph.json` of the repository in the working directory.

        Raises `ProjectError`.
        """
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ProjectError(f"There is no `{path.name}`.") from None
        except (OSError, ValueError) as error:
            raise ProjectError(f"`{path.name}` cannot be read: {error}") from None
        if not isinstance(config, dict) or not isinstance(config.get("graphs"), dict):
            raise ProjectError(f"`{path.name}` must be an object with an object `graphs`.")
        folder, root = path.resolve().parent, Path.cwd()
        return cls(folder, config, root=root if folder.is_relative_to(root) else folder)

    def prepare(self) -> None:
        """Set working directory, import path and environment variables of this process."""
        os.chdir(self.folder)
        for dependency in self.config.get("dependencies") or ["."]:
            folder = self._local_folder(dependency)
            if folder is not None:
                _add_to_path(folder)
                if is_flat_package(folder):
                    sys.meta_path.append(_FlatPackageFinder(folder))
        # The platform sets the variables of a `.env` file when it starts this process.
        env = self.config.get("env")
        for name, value in env.items() if isinstance(env, dict) else ():
            os.environ.setdefault(str(name), str(value))
        if level := os.environ.get("LOG_LEVEL"):
            logging.basicConfig(level=level.upper())

    def _local_folder(self, dependency: object) -> Path | None:
        """Return the folder of a local dependency, which may be named by its requirements file."""
        if not isinstance(dependency, str):
            return None
        path = (self.folder / dependency).resolve()
        if path.is_file() and path.name.endswith((".txt", ".toml", ".cfg", ".py")):
            return path.parent
        return path if dependency.startswith(".") else None

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
                    f"Graph `{graph_id}` in langgraph.json must be a string or an object with"
                    " `path`."
                )
        return graphs

    def load(self, text: str, source: str) -> Any:
        """Load the object of a target. The message of a `ProjectError` ends with the traceback."""
        target = ObjectReference.parse(text, source)
        try:
            module = self._module(target, source)
        except ProjectError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            message = f"{type(error).__name__}: {error}\n{_format_traceback(error)}"
            raise ProjectError(
                f"{source} (`{text}`) could not be imported: {_with_relative_paths(message, self)}"
            ) from error
        value: Any = module
        for part in target.name.split("."):
            if not hasattr(value, part):
                names = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
                raise ProjectError(
                    f"{source}: `{target.module}` has no `{target.name}`. It defines: {names}"
                )
            value = getattr(value, part)
        return value

    def _module(self, target: ObjectReference, source: str) -> ModuleType:
        if not target.is_file:
            return importlib.import_module(target.module)
        path = (self.folder / target.module).resolve()
        if not path.is_relative_to(self.root):
            raise ProjectError(f"{source}: `{target.module}` is outside the repository.")
        if not path.is_file():
            raise ProjectError(f"{source}: there is no file `{target.module}` in the repository.")
        if path.suffix != ".py":
            raise ProjectError(
                f"{source}: `{target.module}` is not Python; only Python is supported."
            )
        return _module_of_file(path, self.folder, self.root)


def _module_of_file(path: Path, project: Path, repository: Path) -> ModuleType:
    """Import a file, as a module of its package if it is in one, for relative imports."""
    root = project if path.is_relative_to(project) else repository
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder != root.parent:
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) > 1 and all(name.isidentifier() for name in names):
        _add_to_path(folder)
        return importlib.import_module(".".join(names))
    # A stable, unique name: checkpoints refer to classes by module, and files may share a stem.
    digest = hashlib.sha256(os.path.relpath(path, project).encode()).hexdigest()[:8]
    name = f"{path.stem}_{digest}" if path.stem.isidentifier() else f"graph_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _add_to_path(path.parent, last=True)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def is_flat_package(folder: Path) -> bool:
    """Whether the folder itself is a package, without packaging files to install it by."""
    files = ("pyproject.toml", "setup.py", "setup.cfg")
    return (
        (folder / "__init__.py").is_file()
        and folder.name.isidentifier()
        and not any((folder / name).exists() for name in files)
    )


class _FlatPackageFinder(MetaPathFinder):
    """Imports one folder as the package of its name, without its siblings.

    The folder's parent is not added to `sys.path`, since that would make the siblings importable.
    Installed packages of the same name take precedence, because this finder is the last one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.folder.name:
            return None
        return importlib.util.spec_from_file_location(
            name,
            self.folder / "__init__.py",
            submodule_search_locations=[str(self.folder)],
        )


def _add_to_path(folder: Path, *, last: bool = False) -> None:
    text = str(folder)
    if text in sys.path:
        return
    if last:
        sys.path.append(text)
    else:
        sys.path.insert(0, text)


def _with_relative_paths(text: str, project: AgentProject) -> str:
    """Return the text with paths that are relative to the project and the environment."""
    for folder in (project.folder, project.root, Path(sys.prefix)):
        text = text.replace(f"{folder}{os.sep}", "")
    return text


def _format_traceback(error: BaseException) -> str:
    """Return the end of a traceback, without frames of this program and of the import system."""
    own_folder = str(Path(__file__).parent)
    import_system = importlib.__file__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((own_folder, import_system, "<frozen importlib"))
    ]
    lines = traceback.format_list(frames[-_TAIL_FRAMES:])
    lines += traceback.format_exception_only(error)
    return "".join(lines).rstrip()
