"""The vocabulary linter: words that this project does not use (vocabulary.toml).

`python -m tests.prose.linter` prints each use with its place; `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = Path(__file__).with_name("vocabulary.toml")
FOLDERS = ("apps", "config", "templates", "static", "tests", "docs", "README.md", "Makefile",
           "CHANGELOG.md", "CONTRIBUTING.md")  # fmt: skip
EXCLUDED = ("tests/prose/", "static/vendor/")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """One entry of vocabulary.toml."""

    label: str
    use: str
    left: int
    names: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    is_part: bool = False
    pattern: re.Pattern[str] | None = None

    def matches_path(self, path: str) -> bool:
        """Whether a folder of the path, or the file without its extension, is a banned module."""
        return any(part.partition(".")[0] in self.modules for part in path.split("/"))

    def matches_name(self, name: str) -> bool:
        if self.is_part:
            return not self.names.isdisjoint(name.strip("_").split("_"))
        return name.strip("_") in self.names


@dataclass(frozen=True, order=True)
class Use:
    """A use of a banned word."""

    path: str
    line: int
    word: str


def load_rules() -> list[Rule]:
    document = tomllib.loads(VOCABULARY.read_text())
    rules = [
        Rule(
            label=entry["names"][0],
            use=entry["use"],
            left=entry["left"],
            names=frozenset(entry["names"]),
            is_part=entry.get("part", False),
        )
        for entry in document["names"]
    ]
    rules += [
        Rule(
            label=entry["modules"][0],
            use=entry["use"],
            left=entry["left"],
            modules=frozenset(entry["modules"]),
        )
        for entry in document["modules"]
    ]
    rules += [
        Rule(
            label=entry["pattern"],
            use=entry["use"],
            left=entry["left"],
            pattern=re.compile(entry["pattern"]),
        )
        for entry in document["phrases"]
    ]
    return rules


def list_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        path
        for path in listed.splitlines()
        if not path.startswith(EXCLUDED) and (ROOT / path).is_file()
    ]


def find_uses(rules: list[Rule], path: str, text: str) -> Iterator[tuple[Rule, Use]]:
    """Yield each use of a banned name or phrase in the path or the text of a file."""
    for rule in rules:
        if rule.matches_path(path):
            yield rule, Use(path, 1, path)
    for name, line in _names(path, text):
        for rule in rules:
            if rule.pattern is None and rule.matches_name(name):
                yield rule, Use(path, line, name)
    for number, line_text in enumerate(text.splitlines(), 1):
        for rule in rules:
            if rule.pattern is not None:
                for match in rule.pattern.finditer(line_text):
                    yield rule, Use(path, number, match[0])


def _names(path: str, text: str) -> Iterator[tuple[str, int]]:
    """Yield the identifiers that a file defines or uses, with their lines."""
    if path.endswith(".py"):
        yield from _python_names(ast.parse(text))
    elif path.endswith((".js", ".mjs", ".css")):
        code = _BLOCK_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        for number, line in enumerate(code.splitlines(), 1):
            for match in _NAME.finditer(line.partition("//")[0]):
                yield match[0], number


def _python_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def collect() -> dict[Rule, list[Use]]:
    """Return the uses in the whole repository by rule."""
    rules = load_rules()
    uses: dict[Rule, list[Use]] = {rule: [] for rule in rules}
    for path in list_files():
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        for rule, use in find_uses(rules, path, text):
            uses[rule].append(use)
    return uses


def main() -> int:
    """Print the uses of each rule that has more than are left; 1 when there are any."""
    status = 0
    for rule, uses in collect().items():
        if len(uses) > rule.left:
            status = 1
            print(f"{rule.label}: {len(uses)} uses, {rule.left} allowed. Use {rule.use}.")
            for use in sorted(uses):
                print(f"  {use.path}:{use.line}: {use.word}")
    return status


if __name__ == "__main__":
    sys.exit(main())
