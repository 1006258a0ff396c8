"""Names that tests give as text: they are stale after a rename and no type checker sees them.

`python -m tests.references` prints each one that does not exist: targets of `monkeypatch.setattr`,
dotted paths in strings, imports, attributes of imported modules, and all of these inside scripts
that tests run in their own processes. Nothing is imported; modules are only parsed.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("apps", "config", "tests")
# Its scripts name modules that it makes up.
EXCLUDED = "tests/test_references.py"
# "config." also begins the paths of fields of a run's configuration.
_DOTTED_PATH = re.compile(r"(apps|tests)(\.[A-Za-z_]\w*)+")
_IMPORT = re.compile(r"^\s*(from|import) (apps|config|tests)\b", re.MULTILINE)


@dataclass(frozen=True, order=True)
class StaleReference:
    """A name in a file that does not exist where the file looks for it."""

    path: str
    line: int
    name: str


class SourceTree:
    """The modules below a folder, parsed when they are first asked for."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.is_module = functools.cache(self._is_module)
        self.module_names = functools.cache(self._module_names)
        self.exists = functools.cache(self._exists)

    def _is_module(self, dotted: str) -> bool:
        path = self.root.joinpath(*dotted.split("."))
        return path.is_dir() or path.with_suffix(".py").is_file()

    def _module_names(self, dotted: str) -> dict[str, ast.AST | str]:
        """Each name of a module, with its definition or the path that it is imported from."""
        path = self.root.joinpath(*dotted.split("."))
        module = path.with_suffix(".py")
        # A folder of the same name has only the bytecode of a package that became this module.
        file = module if module.is_file() else path / "__init__.py"
        if not file.is_file():
            return {}
        return _collect_names(ast.parse(file.read_text()).body)

    def _exists(self, dotted: str) -> bool:
        """Whether a dotted path leads to a module, or to something that a module defines.

        Attributes of what the tree does not define (variables, other libraries) are accepted.
        """
        parts = dotted.split(".")
        lengths = (n for n in range(len(parts), 0, -1) if self.is_module(_join(parts[:n])))
        length = next(lengths, 0)
        if length in (0, len(parts)):
            return length > 0
        module, (name, *attributes) = _join(parts[:length]), parts[length:]
        names = self.module_names(module)
        if name not in names:
            return "__getattr__" in names or name in {"__file__", "__name__", "__doc__"}
        definition = names[name]
        if not attributes:
            return True
        if isinstance(definition, str):
            target = _join([definition, *attributes])
            return not target.startswith(PACKAGES) or target == dotted or self.exists(target)
        if isinstance(definition, ast.ClassDef):
            return self._class_has(definition, attributes[0], names)
        return True

    def _class_has(
        self, definition: ast.ClassDef, attribute: str, names: dict[str, ast.AST | str]
    ) -> bool:
        if attribute.startswith("__") or definition.decorator_list or definition.keywords:
            return True
        own = _collect_names(definition.body).keys() | {
            node.attr
            for node in ast.walk(definition)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        if attribute in own:
            return True
        for base in definition.bases:
            local = names.get(base.id) if isinstance(base, ast.Name) else None
            # What a base of another module or library defines is not followed.
            if not isinstance(local, ast.ClassDef) or self._class_has(local, attribute, names):
                return True
        return False

    def find_stale(self, path: str, source: str) -> Iterator[StaleReference]:
        """The stale references of a test file, the scripts in its strings included."""
        tree = ast.parse(source)
        for line, name in _find_references(tree):
            if not self.exists(name):
                yield StaleReference(path, line, name)
        for line, script in _find_scripts(tree):
            for script_line, name in _find_references(script):
                if not self.exists(name):
                    yield StaleReference(path, line + script_line - 1, name)


def _join(parts: list[str]) -> str:
    return ".".join(parts)


def _collect_names(body: list[ast.stmt]) -> dict[str, ast.AST | str]:
    names: dict[str, ast.AST | str] = {}
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names[statement.name] = statement
            case ast.Import():
                for alias in statement.names:
                    local = alias.asname or alias.name.split(".")[0]
                    names[local] = alias.name if alias.asname else local
            case ast.ImportFrom():
                for alias in statement.names:
                    names[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
            case _:
                for node in ast.iter_child_nodes(statement):
                    names |= {
                        target.id: statement
                        for target in ast.walk(node)
                        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
                    }
                for field in ("body", "orelse", "finalbody"):
                    names |= _collect_names(getattr(statement, field, []))
                for handler in getattr(statement, "handlers", []):
                    names |= _collect_names(handler.body)
    return names


def _find_references(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and dotted path of each reference to this project."""
    imported: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(PACKAGES):
                    yield node.lineno, alias.name
                    if alias.asname:
                        imported[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                imported[alias.asname or alias.name] = name
                yield node.lineno, name
    # A name that is also a variable or parameter may be either.
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            imported.pop(node.id, None)
        elif isinstance(node, ast.arg):
            imported.pop(node.arg, None)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if name := _resolve(node, imported):
                yield node.lineno, name
        elif isinstance(node, ast.Call):
            yield from _find_patched(node, imported)
        elif _is_dotted_path(node):
            yield node.lineno, node.value


def _is_dotted_path(node: ast.AST) -> TypeGuard[ast.Constant]:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return _DOTTED_PATH.fullmatch(node.value) is not None and not node.value.endswith(".py")


def _find_patched(call: ast.Call, imported: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The target of `monkeypatch.setattr(target, "name", ...)` and `patch.object`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in {"setattr", "delattr", "object"}:
        match call.args:
            case [target, ast.Constant(value=str(name)), *_]:
                if path := _resolve(target, imported):
                    yield call.lineno, f"{path}.{name}"


def _resolve(node: ast.AST, imported: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name):
            return imported.get(name)
        case ast.Attribute(value=value, attr=attribute):
            path = _resolve(value, imported)
            return path and f"{path}.{attribute}"
    return None


def _find_scripts(tree: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """The strings that are Python and import from this project, with the line they begin at."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            values = (v.value if isinstance(v, ast.Constant) else "_" for v in node.values)
            text = "".join(map(str, values))
        else:
            continue
        if _IMPORT.search(text.replace(";", "\n")):
            try:
                yield node.lineno, ast.parse(textwrap.dedent(text))
            except SyntaxError:
                continue  # Text that mentions an import.


def find_all(root: Path = ROOT) -> list[StaleReference]:
    sources = SourceTree(root)
    stale = set[StaleReference]()
    for file in root.glob("tests/**/*.py"):
        path = file.relative_to(root).as_posix()
        if path != EXCLUDED:
            stale |= set(sources.find_stale(path, file.read_text()))
    return sorted(stale)


if __name__ == "__main__":
    stale_references = find_all()
    for reference in stale_references:
        sys.stderr.write(f"{reference.path}:{reference.line}: {reference.name} does not exist\n")
    sys.exit(bool(stale_references))
