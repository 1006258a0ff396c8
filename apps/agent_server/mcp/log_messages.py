"""Custom stream events of graphs as log messages, for clients that ask for a level.

A client of 2026-07-28 names the level in each request; one with a session sets it for the session,
where it is kept in the cache: a session id cannot change.
"""

from __future__ import annotations

from typing import Any

from django.core.cache import cache

from apps.agent_server.mcp.sessions import LIFETIME_SECONDS, Session
from apps.core.mcp.messages import INVALID_PARAMS, JSONObject, RpcError

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of RFC 5424, the least severe first."""
DEFAULT_LEVEL = "info"
MAX_MESSAGES = 1_000
"""Of one call; later ones are left out."""


def check_level(level: Any) -> str:
    """Return the level. Raises `RpcError` unless it is one."""
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"The log level must be one of {', '.join(LEVELS)}.")
    return str(level)


def set_level(session: Session, level: str) -> None:
    cache.set(_key(session), level, LIFETIME_SECONDS)


def read_level(session: Session) -> str | None:
    """The level that the client of the session asked for; None if it did not."""
    level: str | None = cache.get(_key(session))
    return level


def _key(session: Session) -> str:
    return f"mcp-log-level:{session.token}"


def to_message(event: Any, level: str) -> JSONObject | None:
    """The message of a custom event; None if it is less severe than the client's level.

    An object with `data` and a `level` names its level, and maybe its `logger`; any other event is
    the data of a message of the level `info`.
    """
    names = isinstance(event, dict) and "data" in event and event.get("level") in LEVELS
    message: JSONObject = {
        "level": event["level"] if names else DEFAULT_LEVEL,
        "data": event["data"] if names else event,
    }
    if names and isinstance(event.get("logger"), str):
        message["logger"] = event["logger"]
    is_severe = LEVELS.index(message["level"]) >= LEVELS.index(level)
    return message if is_severe else None
