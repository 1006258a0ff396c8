"""The vocabulary linter: words that this project does not use (vocabulary.toml).

`python -m tests.prose.linter` prints each use with its place; `make check` runs it. Words are
banned in product code and its SQL, templates, styles, scripts, docs and build files. Tests are left
to review. There are no counts, so that two branches that pass separately also pass when merged.
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
FOLDERS = ("apps", "config", "templates", "static", "docs", "docker", ".ci", "manage.py",
           "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml",
           "eslint.config.js", ".pre-commit-config.yaml")  # fmt: skip
EXCLUDED = ("static/vendor/",)
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# A key, variable, target or function of a build file.
_DEFINITION = re.compile(r"^\s*([A-Za-z_][\w-]*)\s*(?:\(\)|[:?]?=|:)")
_TEMPLATE_CODE = re.compile(r"\{\{(.*?)\}\}|\{%(.*?)%\}|\b(?:class|id)=\"([^\"{]*)")
_TEMPLATE_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")
_SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|FROM|JOIN|WHERE|WITH|RETURNING|GROUP BY|ORDER BY"
    r"|CREATE|ALTER TABLE)\b"
)
_SQL_PROSE = re.compile(r"'[^']*'|--.*")


@dataclass(frozen=True)
class Rule:
    """One entry of vocabulary.toml."""

    label: str
    use: str
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


@dataclass(frozen=True, order=True)
class Exemption:
    """A word that a file may use."""

    path: str
    word: str


def load_rules() -> list[Rule]:
    document = tomllib.loads(VOCABULARY.read_text())
    rules = [
        Rule(
            label=entry["names"][0],
            use=entry["use"],
            names=frozenset(entry["names"]),
            is_part=entry.get("part", False),
        )
        for entry in document["names"]
    ]
    rules += [
        Rule(
            label=entry["modules"][0],
            use=entry["use"],
            modules=frozenset(entry["modules"]),
        )
        for entry in document["modules"]
    ]
    rules += [
        Rule(
            label=entry["pattern"],
            use=entry["use"],
            pattern=re.compile(entry["pattern"]),
        )
        for entry in document["phrases"]
    ]
    return rules


def load_exemptions() -> set[Exemption]:
    """Return the exceptions of vocabulary.toml; each must give its reason."""
    entries = tomllib.loads(VOCABULARY.read_text())["exceptions"]
    for entry in entries:
        if not entry["reason"].strip():
            raise ValueError(f"The exception for {entry['file']} gives no reason.")
    return {Exemption(entry["file"], word) for entry in entries for word in entry["words"]}


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
        tree = ast.parse(text)
        yield from _python_names(tree)
        yield from _sql_names(tree, text.splitlines())
    elif path.endswith((".js", ".mjs", ".css")):
        code = _BLOCK_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        for number, line in enumerate(code.splitlines(), 1):
            for match in _NAME.finditer(line.partition("//")[0]):
                yield match[0], number
    elif path.endswith(".html"):
        for number, line in enumerate(text.splitlines(), 1):
            for code in _TEMPLATE_CODE.finditer(line):
                for name in _NAME.findall(_TEMPLATE_STRING.sub("", code[code.lastindex or 0])):
                    yield name, number
    elif not path.endswith((".md", ".svg", ".txt")):
        for number, line in enumerate(text.splitlines(), 1):
            if match := _DEFINITION.match(line):
                yield match[1], number


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


def _sql_names(tree: ast.AST, lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the names in strings that hold SQL, with the first line of the string that has them."""
    for node, text in _strings(tree):
        if _SQL.search(text):
            numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for name in dict.fromkeys(_NAME.findall(_SQL_PROSE.sub("", text))):
                yield name, next((n for n in numbers if name in lines[n - 1]), node.lineno)


def _strings(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield each string except docstrings; an f-string is one string, without its values."""
    nodes = list(ast.walk(tree))
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in inner:
                yield node, text
            case ast.JoinedStr(values=parts):
                texts = [part.value if isinstance(part, ast.Constant) else "?" for part in parts]
                yield node, "".join(texts)


def collect() -> list[tuple[Rule, Use]]:
    """Return the uses in the whole repository."""
    rules = load_rules()
    uses: list[tuple[Rule, Use]] = []
    for path in list_files():
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        uses += find_uses(rules, path, text)
    return uses


def report(uses: list[tuple[Rule, Use]], exemptions: set[Exemption]) -> list[str]:
    """Return a line for each use without exception and for each exception without use."""
    lines = []
    used = set()
    for rule, use in sorted(uses, key=lambda item: item[1]):
        exemption = Exemption(use.path, use.word)
        if exemption in exemptions:
            used.add(exemption)
        else:
            lines.append(f"{use.path}:{use.line}: {use.word}. Use {rule.use}.")
    lines += [
        f"vocabulary.toml: {exemption.path} no longer uses {exemption.word!r}: drop the exception."
        for exemption in sorted(exemptions - used)
    ]
    return lines


def main() -> int:
    """Print each banned use and each stale exception; return 1 if there are any."""
    lines = report(collect(), load_exemptions())
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
