"""Where the work at hand comes from: the request, and who was found behind it.

One `Origin` belongs to one request or connection; whoever recognises the caller notes it there, so
that a service deep below can say on whose behalf it acts without being told.
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


@dataclass(slots=True)
class RequestContext:
    """One request, connection or command."""

    ip: str | None = None
    request_id: str = ""
    caller: Caller | None = None
    """The key or the member that was recognised."""
    request: HttpRequest | None = None
    """For pages: its `user` is asked for only when something is recorded."""
    organization_id: UUID | None = None
    """Where a route is about an organization and not about a workspace."""
    key_id: UUID | None = None
    user_id: UUID | None = None
    operator: str = ""
    """Who runs a command, in words."""


_current: ContextVar[RequestContext | None] = ContextVar("origin", default=None)


def current() -> RequestContext | None:
    """The origin of what runs now; None for tasks and for code that nobody asked for."""
    return _current.get()


def enter(origin: RequestContext) -> None:
    """What runs in this context from now on comes from there."""
    _current.set(origin)


def leave() -> None:
    """Nothing more comes from there: a thread that lasts would keep the request's body."""
    _current.set(None)


@contextmanager
def activate(origin: RequestContext) -> Iterator[RequestContext]:
    """The same for a block of code."""
    token = _current.set(origin)
    try:
        yield origin
    finally:
        _current.reset(token)


def set_caller(caller: Caller) -> None:
    """Note who is asking; without an origin there is nobody to tell."""
    origin = _current.get()
    if origin is not None:
        origin.caller = caller
        origin.key_id, origin.user_id = caller.key_id, caller.user_id
        origin.organization_id = caller.organization_id


def set_identity(
    *, organization_id: UUID, key_id: UUID | None = None, user_id: UUID | None = None
) -> None:
    """The same where there is no `Caller`, as on routes about an organization itself."""
    origin = _current.get()
    if origin is not None:
        origin.key_id, origin.user_id = key_id, user_id
        origin.organization_id = organization_id
