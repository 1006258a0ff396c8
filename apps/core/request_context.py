"""The request or connection that the current code runs for, and its caller.

One `RequestContext` belongs to one request or connection. Authentication stores the caller in it,
so that services can record audit entries without a parameter for the actor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from django.http import HttpRequest

    from apps.core.callers import Caller


PLATFORM_AUDIENCE = "mcp"
"""The platform's MCP server."""


def agent_audience(slug: str) -> str:
    """The MCP server of an agent."""
    return f"agents/{slug}"


@dataclass(slots=True)
class RequestContext:
    """One request, connection or command."""

    ip: str | None = None
    request_id: str = ""
    caller: Caller | None = None
    """The authenticated key or member."""
    request: HttpRequest | None = None
    """For pages: `user` is loaded only when an audit entry is written."""
    organization_id: UUID | None = None
    """Set on routes of an organization, which have no workspace."""
    key_id: UUID | None = None
    user_id: UUID | None = None
    audience: str = ""
    """The MCP server that the request is for: the only one whose own keys it accepts."""
    operator: str = ""
    """The person who runs a management command."""


_current: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)


def current() -> RequestContext | None:
    """Return the active context; None in tasks and background code."""
    return _current.get()


def enter(context: RequestContext) -> None:
    """Make this the active context of the current task or thread."""
    _current.set(context)


def leave() -> None:
    """Clear the active context; a pool thread would otherwise keep the request body alive."""
    _current.set(None)


@contextmanager
def activate(context: RequestContext) -> Iterator[RequestContext]:
    """Make this the active context within a block."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def set_caller(caller: Caller) -> None:
    """Store the authenticated caller; without an active context this has no effect."""
    context = _current.get()
    if context is not None:
        context.caller = caller
        context.key_id, context.user_id = caller.key_id, caller.user_id
        context.organization_id = caller.organization_id


def set_identity(
    *, organization_id: UUID, key_id: UUID | None = None, user_id: UUID | None = None
) -> None:
    """Store the identity on routes without a `Caller`, such as those of an organization."""
    context = _current.get()
    if context is not None:
        context.key_id, context.user_id = key_id, user_id
        context.organization_id = organization_id
