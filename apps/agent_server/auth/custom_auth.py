"""Asking an agent's own code who a caller is and what they may do, before a request is answered.

The code runs in a graph host, so asking takes as long as the author's code likes; no thread waits
for it. A view or a service that needs an answer raises `AskFirst`. Whoever called it on an event
loop awaits `Visit.resolve` and begins again, and then the answer is there. So what happens before
the last question must be safe to repeat: reading the request and checking it is.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from apps.agent_server.auth import loopback
from apps.agent_server.messaging.calls import acall
from apps.api_keys.services import PREFIX as KEY_PREFIX
from apps.core import errors
from apps.core.json import dumps, loads
from apps.deployments.models import Revision
from apps.deployments.routes import Route

AUTH_EXCHANGE_KEY = "slipway.auth_exchange"
"""Where a WSGI environment keeps it."""
AUTH_TIMEOUT_SECONDS = 30
MAX_CALLS_PER_REQUEST = 50
MAX_CONCURRENT_CALLS = 64
"""Questions to one deployment's code that a web process has under way."""


class AuthPending(errors.Unavailable):
    """The agent's code must be asked; nobody outside sees this."""


class AuthBusy(errors.Unavailable):
    code, detail = "agent_auth_busy", "The agent's authentication is slower than its callers."


class AuthExchange:
    """One request, over all the times that it is begun."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        """The request in JSON: `method`, `path`, `path_params`, `query`, `headers`."""
        self.user: dict[str, Any] | None = None
        self.is_counted = False
        """On the deployment's own limit."""
        self._answers: dict[bytes, dict[str, Any] | errors.AppError] = {}
        self._open: tuple[Route, bytes, dict[str, Any]] | None = None

    def answer(
        self, route: Route, who: Mapping[str, Any], question: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the agent's code says. `AskFirst` when it has not been asked yet.

        Raises what the request is to be answered with when nothing could be found out.
        """
        key = dumps(question)
        answer = self._answers.get(key)
        if answer is None and len(self._answers) < MAX_CALLS_PER_REQUEST:
            self._open = route, key, {**who, **question}
            raise AuthPending
        if answer is None:
            raise AuthBusy
        if isinstance(answer, errors.AppError):
            raise answer
        return answer

    async def resolve(self) -> None:
        """Get the answer that is missing."""
        if self._open is None:
            return
        (route, key, asked), self._open = self._open, None
        try:
            self._answers[key] = await _ask(route, asked)
        except errors.AppError as error:
            self._answers[key] = error


_open_calls: dict[UUID, int] = {}


async def _ask(route: Route, question: dict[str, Any]) -> dict[str, Any]:
    deployment = route.deployment_id
    busy = _open_calls.get(deployment, 0)
    if busy >= MAX_CONCURRENT_CALLS:
        raise AuthBusy
    _open_calls[deployment] = busy + 1
    revision = Revision(
        pk=route.active_revision_id, deployment_id=deployment, workspace_id=route.workspace_id
    )
    try:
        answer: dict[str, Any] = loads(
            await acall(revision, "", "auth", question, seconds=AUTH_TIMEOUT_SECONDS)
        )
        return answer
    finally:
        left = _open_calls[deployment] - 1
        if left:
            _open_calls[deployment] = left
        else:
            del _open_calls[deployment]


class UserCache:
    """Who was told apart by the values of some headers, for as long as `auth.cache` says."""

    def __init__(self) -> None:
        self._users: dict[UUID, OrderedDict[tuple[str, ...], tuple[float, dict[str, Any]]]] = {}

    def get(self, route: Route, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """The user of these headers."""
        key = _cache_key(route, headers)
        users = self._users.get(_revision(route))
        if key is None or users is None:
            return None
        expires, user = users.get(key, (0.0, None))
        return user if expires > time.monotonic() else None

    def keep(self, route: Route, headers: Mapping[str, str], user: dict[str, Any]) -> None:
        key = _cache_key(route, headers)
        if key is None:
            return
        cache = _cache(route)
        if len(self._users) > 1000:
            self._users.clear()
        users = self._users.setdefault(_revision(route), OrderedDict())
        users[key] = time.monotonic() + cache.ttl_seconds, user
        users.move_to_end(key)
        while len(users) > cache.max_size:
            users.popitem(last=False)

    def forget(self) -> None:
        self._users.clear()


user_cache = UserCache()


def _cache(route: Route) -> Any:
    auth = route.serving.auth
    return None if auth is None else auth.cache


def _cache_key(route: Route, headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """None where nothing is cached, and for callers who send none of the headers."""
    cache = _cache(route)
    if cache is None:
        return None
    values = tuple(headers.get(name) or "" for name in cache.cache_keys)
    return values if any(values) else None


def _revision(route: Route) -> UUID:
    return route.active_revision_id or route.deployment_id


def describe_request(
    *,
    method: str,
    path: str,
    query: str,
    headers: Iterable[tuple[str, str]],
    path_params: Mapping[str, str],
) -> dict[str, Any]:
    """A request as the agent's code is told of it; its path is below the agent's address."""
    params = {name: value for name, value in path_params.items() if name != "slug"}
    below = path
    if (slug := path_params.get("slug")) is not None:
        below = path.partition(f"/agents/{slug}")[2] or "/"
    return {
        "method": method,
        "path": below,
        "query": query,
        "headers": [*strip_platform_credentials(headers)],
        "path_params": params,
    }


def strip_platform_credentials(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A request's headers without what is between its sender and the platform.

    Agent code is somebody else's: it must not learn a key or a session of this platform.
    """
    ours = {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}
    for name, value in headers:
        lower = name.lower()
        if lower == loopback.HEADER.lower() or value.rpartition(" ")[2].startswith(KEY_PREFIX):
            continue
        if lower == "cookie":
            parts = (part.strip() for part in value.split(";"))
            kept = "; ".join(part for part in parts if part.partition("=")[0] not in ours)
            if kept:
                yield name, kept
            continue
        yield name, value
