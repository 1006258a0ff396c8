"""Variables of `.env` files, read with python-dotenv as LangGraph's CLI does."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from dotenv.parser import parse_stream
from dotenv.variables import parse_variables

from apps.deployments.build_dirs import FileNotReadable, RevisionDir
from apps.deployments.langgraph_json import ConfigError, repository_path

_EXAMPLE_SUFFIXES = (".example", ".sample", ".template")
_TRACING = ("LANGSMITH_", "LANGCHAIN_")


class InvalidStatement(ValueError):
    """A statement of the text is not `NAME=value`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"Line {line} is not in the form NAME=value.")


def parse_env_file(
    text: str, environment: Mapping[str, str], *, strict: bool = False
) -> dict[str, str]:
    """Return the variables; `${NAME}` is that of an earlier line or of `environment`.

    The process's own environment is never read, because it has the platform's secrets. Statements
    without a value are ignored, as python-dotenv does, or with `strict` raise `InvalidStatement`.
    """
    variables: dict[str, str] = {}
    for name, value in _statements(text, strict=strict):
        known = {**environment, **variables}
        variables[name] = "".join(atom.resolve(known) for atom in parse_variables(value))
    return variables


def _statements(text: str, *, strict: bool) -> Iterator[tuple[str, str]]:
    for binding in parse_stream(io.StringIO(text)):
        is_invalid = binding.error or (binding.key is not None and binding.value is None)
        if is_invalid and strict:
            raise InvalidStatement(binding.original.line)
        # A process cannot have variables with U+0000.
        if binding.key and binding.value is not None and "\0" not in binding.key + binding.value:
            yield binding.key, binding.value


def read_env_file(
    directory: RevisionDir, config_path: str, config: Mapping[str, Any], environment: dict[str, str]
) -> dict[str, str]:
    """Return the variables of the file that `env` of `langgraph.json` names; none without it."""
    path = config.get("env")
    if not path or not isinstance(path, str):
        return {}
    try:
        text = directory.read_text(repository_path(posixpath.dirname(config_path), path))
    except (ConfigError, FileNotReadable):
        return {}
    return parse_env_file(text, environment)


def missing_example_variables(
    directory: RevisionDir, config_path: str, config: Mapping[str, Any], environment: dict[str, str]
) -> tuple[str, list[str]] | None:
    """Return the example next to an absent `.env` file, and its variables without a value here.

    Repositories do not contain their `.env`, but say in an example what it needs. Variables of
    tracing, which the platform sets, do not count. None if nothing is missing.
    """
    path = config.get("env")
    if not path or not isinstance(path, str):
        return None
    folder = posixpath.dirname(config_path)
    for suffix in _EXAMPLE_SUFFIXES:
        try:
            example = repository_path(folder, f"{path}{suffix}")
            text = directory.read_text(example)
        except (ConfigError, FileNotReadable):
            continue
        names = dict.fromkeys(name for name, _ in _statements(text, strict=False))
        missing = [
            name for name in names if name not in environment and not name.startswith(_TRACING)
        ]
        return (example, missing) if missing else None
    return None
