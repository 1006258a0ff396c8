"""The project's serialiser options (`checkpointer.serde` of langgraph.json)."""

from __future__ import annotations

import inspect
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from .project import Project, ProjectError
from .saver import SocketSaver

_MODULES = ("allowed_json_modules", "allowed_msgpack_modules")


def configure(project: Project) -> None:
    """Configure the serialiser of all savers; a host serves one project."""
    serde_config = (project.config.get("checkpointer") or {}).get("serde")
    if not serde_config:
        return
    options: dict[str, Any] = {}
    for name, value in serde_config.items():
        if value is None:
            continue
        is_list = name in _MODULES and isinstance(value, list)
        options[name] = [tuple(part) for part in value] if is_list else value
    known = inspect.signature(JsonPlusSerializer).parameters
    if unknown := sorted(options.keys() - known.keys()):
        raise ProjectError(
            f"`checkpointer.serde.{unknown[0]}` is not supported by the installed version"
            " of LangGraph."
        )
    SocketSaver.serde = JsonPlusSerializer(**options)
