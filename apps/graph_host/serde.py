"""How states become bytes and back, where the project says so (`checkpointer.serde`)."""

from __future__ import annotations

import inspect
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from .project import Project, ProjectError
from .saver import SocketSaver

_MODULES = ("allowed_json_modules", "allowed_msgpack_modules")


def configure(project: Project) -> None:
    """Have the savers of this host use the project's serialiser: a host is one project's."""
    wanted = (project.config.get("checkpointer") or {}).get("serde")
    if not wanted:
        return
    options: dict[str, Any] = {}
    for name, value in wanted.items():
        if value is None:
            continue
        is_list = name in _MODULES and isinstance(value, list)
        options[name] = [tuple(part) for part in value] if is_list else value
    known = inspect.signature(JsonPlusSerializer).parameters
    if unknown := sorted(options.keys() - known.keys()):
        raise ProjectError(
            f"`checkpointer.serde.{unknown[0]}` is not known to the version of LangGraph that is"
            " installed."
        )
    SocketSaver.serde = JsonPlusSerializer(**options)
