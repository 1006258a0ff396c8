"""Calls of an agent's own authentication code, which returns the user and authorizes actions.

The code runs in a graph host for an unknown time, so no thread waits for it. A view or service that
needs a result raises `AuthPending`. Its caller on the event loop awaits `AuthExchange.resolve` and
restarts the view, which then gets the result. Everything before the last call must therefore be
safe to repeat, as reading and validating the request is.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from apps.agent_server.auth import loopback
from apps.agent_server.messaging import calls
from apps.api_keys.services import PREFIX as KEY_PREFIX
from apps.core import errors
from apps.core.json import dumps, loads_exact
from apps.deployments.routes import Route

AUTH_TIMEOUT_SECONDS = 30
MAX_CALLS_PER_REQUEST = 50
MAX_CONCURRENT_CALLS = 64
"""Calls to one deployment's code that a web process has open at the same time."""


class AuthPending(errors.Unavailable):
    """The agent's code must be called first. Internal: clients never receive this error."""


class AuthBusy(errors.Unavailable):
    code, detail = (
        "agent_auth_busy",
        "The agent's authentication code has too many open calls. Retry later.",
    )


class AuthExchange:
    """The authentication calls of one request, across its restarts."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        """The request in JSON: `method`, `path`, `path_params`, `query`, `headers`."""
        self.user: dict[str, Any] | None = None
        self.is_counted = False
        """Whether the request was counted on the deployment's rate limit."""
        self._answers: dict[bytes, dict[str, Any] | errors.AppError] = {}
        self._open: tuple[Route, bytes, dict[str, Any]] | None = None

    def answer(
        self, route: Route, identity: Mapping[str, Any], question: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The response of the agent's code. Raises `AuthPending` if the code was not called yet.

        Raises the error of a failed call, with which the request is answered.
        """
        key = dumps(question)
        answer = self._answers.get(key)
        if answer is None and len(self._answers) < MAX_CALLS_PER_REQUEST:
            self._open = route, key, {**identity, **question}
            raise AuthPending
        if answer is None:
            raise AuthBusy
        if isinstance(answer, errors.AppError):
            raise answer
        return answer

    async def resolve(self) -> None:
        """Make the pending call and store its response."""
        if self._open is None:
            return
        (route, key, params), self._open = self._open, None
        try:
            self._answers[key] = await _call_auth_code(route, params)
        except errors.AppError as error:
            self._answers[key] = error


_open_calls: dict[UUID, int] = {}


async def _call_auth_code(route: Route, question: dict[str, Any]) -> dict[str, Any]:
    deployment = route.deployment_id
    open_calls = _open_calls.get(deployment, 0)
    if open_calls >= MAX_CONCURRENT_CALLS:
        raise AuthBusy
    _open_calls[deployment] = open_calls + 1
    try:
        answer: dict[str, Any] = loads_exact(
            await calls.call_graph(route, "", "auth", question, seconds=AUTH_TIMEOUT_SECONDS)
        )
        return answer
    finally:
        _open_calls[deployment] -= 1
        if not _open_calls[deployment]:
            del _open_calls[deployment]


class UserCache:
    """Users by the values of the headers in `auth.cache`, with its time to live."""

    def __init__(self) -> None:
        self._users: dict[UUID, OrderedDict[tuple[str, ...], tuple[float, dict[str, Any]]]] = {}

    def get(self, route: Route, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """The cached user of these headers."""
        key = _cache_key(route, headers)
        users = self._users.get(_revision(route))
        if key is None or users is None:
            return None
        expires, user = users.get(key, (0.0, None))
        return user if expires > time.monotonic() else None

    def put(self, route: Route, headers: Mapping[str, str], user: dict[str, Any]) -> None:
        key = _cache_key(route, headers)
        if key is None:
            return
        cache = _cache_settings(route)
        if len(self._users) > 1000:
            self._users.clear()
        users = self._users.setdefault(_revision(route), OrderedDict())
        users[key] = time.monotonic() + cache.ttl_seconds, user
        users.move_to_end(key)
        while len(users) > cache.max_size:
            users.popitem(last=False)


user_cache = UserCache()


def _cache_settings(route: Route) -> Any:
    auth = route.serving.auth
    return None if auth is None else auth.cache


def _cache_key(route: Route, headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """None if the deployment has no cache or the request has none of the headers."""
    cache = _cache_settings(route)
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
    """A request as the agent's code receives it, with a path relative to the agent's address."""
    params = {name: value for name, value in path_params.items() if name != "slug"}
    relative_path = path
    if (slug := path_params.get("slug")) is not None:
        relative_path = path.partition(f"/agents/{slug}")[2] or "/"
    return {
        "method": method,
        "path": relative_path,
        "query": query,
        "headers": [*strip_platform_credentials(headers)],
        "path_params": params,
    }


def strip_platform_credentials(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A request's headers without the platform's keys and session cookies.

    Agent code is untrusted and must not receive credentials of the platform.
    """
    platform_cookies = {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}
    for name, value in headers:
        lower = name.lower()
        if lower == loopback.HEADER.lower() or value.rpartition(" ")[2].startswith(KEY_PREFIX):
            continue
        if lower == "cookie":
            parts = (part.strip() for part in value.split(";"))
            cookies = [part for part in parts if part.partition("=")[0] not in platform_cookies]
            if cookies:
                yield name, "; ".join(cookies)
            continue
        yield name, value
