"""Authentication and authorization at an Agent Server.

An agent without custom authentication accepts keys and members of its workspace. An agent with
`auth` in its langgraph.json makes this decision: its code is called once per request with the
requested resource and action. A platform key then counts only with `X-Auth-Scheme: langsmith`, and
a session only for members in the console; `disable_studio_auth` disables both.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DatabaseError

from apps.agent_server.auth import loopback, rules
from apps.agent_server.auth.custom_auth import AuthExchange, user_cache
from apps.agent_server.errors import AgentNotReady, AgentStopped, NoSuchAgent
from apps.agent_server.scope import Action, Resource, Scope, graph_context_for
from apps.api_keys.authentication import api_key_from_headers
from apps.api_keys.services import caller_for_key, get_key_info
from apps.core import errors, request_context
from apps.core.callers import Caller
from apps.deployments import routes
from apps.deployments.langgraph_json.sections import HeaderRules
from apps.deployments.routes import STUDIO_USER, Route
from apps.organizations.models import User
from apps.organizations.services import caller_for
from apps.rate_limits.enforcement import check_anonymous, check_deployment

B = TypeVar("B")

# Credentials are never passed to graphs, whatever headers a deployment lists.
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "x-tenant-id"})


@dataclass(frozen=True, slots=True)
class Admission:
    """An authenticated caller of the agent with this slug."""

    _route: Route
    headers: Mapping[str, str]
    caller: Caller | None
    """None if the agent's own code authenticates the caller."""
    auth_exchange: AuthExchange | None = None
    """Set if the agent has custom authentication."""
    is_studio: bool = False
    """Whether a platform member calls an agent that has custom authentication."""

    @property
    def route(self) -> Route:
        """The agent's route. Authenticates the caller, even if no action is authorized."""
        self.user()
        return self._route

    def count(self, auth_exchange: Callable[[], AuthExchange]) -> None:
        """Count the request towards the deployment's own rate limit, if it has one.

        Requests of the agent's own graphs are not counted. A restarted request counts once.
        """
        limit, is_graph = self._route.limit, self.caller is None and self.auth_exchange is None
        if limit is None or is_graph or auth_exchange().is_counted:
            return
        check_deployment("Deployment", str(self._route.deployment_id), limit)
        auth_exchange().is_counted = True

    def user(self) -> dict[str, Any] | None:
        """The user that custom authentication returned; None for agents without it."""
        if self.is_studio:
            return STUDIO_USER
        if self.auth_exchange is None:
            return None
        if self._cached_user() is None:
            self._call_auth_code({})
        return self._cached_user()

    def resolve_scope(self, resource: Resource, action: Action, **value: Any) -> Scope:
        """Authorize the action and return the scope of its rows. May call the agent's code.

        `value` holds the requested ids as text, as the agent's handlers receive them.
        """
        scope, _ = self.authorize(resource, action, None, **value)
        return scope

    def authorize(
        self, resource: Resource, action: Action, body: B, **value: Any
    ) -> tuple[Scope, B]:
        """`resolve_scope` for a request body, which is returned with the handler's changes."""
        if self.auth_exchange is None:
            return Scope(self._route, value=value, graph_context=self._graph_context(None)), body
        before = rules.describe_value(resource, action, body, value)
        question = {"resource": resource, "action": action, "value": before}
        has_rules = self._route.serving.has_auth_rule(resource, action)
        answer = self._call_auth_code(question) if has_rules else {"value": before}
        user = self.user()
        after = answer.get("value") or {}
        scope = Scope(
            self._route,
            visible=rules.metadata_filter(resource, answer.get("filters")),
            user=user,
            value=after,
            graph_context=self._graph_context(user),
        )
        return scope, rules.apply_changes(resource, action, body, before, after)

    # Calls of the agent's code

    def _cached_user(self) -> dict[str, Any] | None:
        """The user, if this request or the cache already has it."""
        if self.is_studio:
            return STUDIO_USER
        if self.auth_exchange is None:
            return None
        if self.auth_exchange.user is None:
            self.auth_exchange.user = user_cache.get(self._route, self.headers)
        return self.auth_exchange.user

    def _call_auth_code(self, question: dict[str, Any]) -> dict[str, Any]:
        """Call the agent's code. The first response also contains the user."""
        assert self.auth_exchange is not None  # noqa: S101
        user = self._cached_user()
        identity = {"request": self.auth_exchange.facts} if user is None else {"user": user}
        answer = self.auth_exchange.answer(self._route, identity, question)
        if "refused" in answer:
            raise rules.refusal_error(answer["refused"])
        if user is None:
            self.auth_exchange.user = answer["user"]
            user_cache.put(self._route, self.headers, answer["user"])
        return answer

    def _graph_context(self, user: dict[str, Any] | None) -> dict[str, Any]:
        """The configurable fields that describe the caller to graphs."""
        fields: dict[str, Any] = {}
        header_rules = self._route.serving.http.configurable_headers
        if header_rules is not None:
            fields |= {
                name.lower(): value
                for name, value in self.headers.items()
                if matches_header_rules(name.lower(), header_rules)
                and name.lower() not in _CREDENTIAL_HEADERS
            }
        if user is not None:
            fields |= graph_context_for(user)
        return fields


def matches_header_rules(name: str, header_rules: HeaderRules) -> bool:
    """Whether the rules include a header; `name` must be in lower case."""
    if any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in header_rules.excludes):
        return False
    return any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in header_rules.includes)


def admit(
    slug: str,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
    auth_exchange: Callable[[], AuthExchange],
) -> Admission:
    """Admit the caller. Raises 401 without a key, 404 for a foreign agent, 403 for a weak key.

    `member` returns the user of a browser session and is called only if no key is sent.
    `auth_exchange` returns the request as custom authentication code sees it. Requests without a
    valid key count towards the catch-all rate limit of their address, admitted requests towards
    the deployment's own limit, if any. Raises 429 when a limit is exceeded.
    """
    try:
        admission = _admit(slug, permission, headers, member, auth_exchange)
    except errors.Unauthenticated:
        context = request_context.current()
        check_anonymous((context and context.ip) or "")
        raise
    admission.count(auth_exchange)
    return admission


def require_deployed(slug: str) -> None:
    """Raise unless an agent with this slug has a deployed revision.

    For public endpoints. Health must not depend on the database, so the check is skipped while the
    database is unavailable.
    """
    try:
        route = routes.find_route(slug)
    except DatabaseError:
        return
    if route is None:
        raise NoSuchAgent
    if route.active_revision_id is None:
        raise AgentNotReady
    require_running(route)


def require_running(route: Route) -> None:
    """Raise if the deployment is stopped.

    With platform keys, callers are authenticated before this check. Custom authentication code does
    not run in a stopped deployment, so with it this check comes first.
    """
    if route.is_stopped:
        raise AgentStopped


def _admit(
    slug: str,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
    auth_exchange: Callable[[], AuthExchange],
) -> Admission:
    if headers.get(loopback.HEADER):
        return Admission(loopback.route_for_token(headers[loopback.HEADER], slug), headers, None)
    route = routes.find_route(slug)
    if route is not None and route.serving.auth is not None:
        return _admit_with_custom_auth(route, permission, headers, member, auth_exchange)
    secret = api_key_from_headers(headers)
    user = None if secret else member()
    if not secret and user is None:
        raise errors.Unauthenticated
    caller, route = _resolve_platform_caller(route, secret, user)
    caller.require(permission)
    require_running(route)
    return Admission(route, headers, caller)


def _resolve_platform_caller(
    route: Route | None, secret: str | None, user: User | None
) -> tuple[Caller, Route]:
    """The key or member as a caller of the agent's workspace. Raises 404 for outsiders."""
    key_info = get_key_info(secret=secret) if secret else None
    if route is None:
        raise NoSuchAgent
    if secret and key_info is not None:
        if key_info.organization_id != route.organization_id:
            raise NoSuchAgent
        return caller_for_key(secret=secret, workspace_id=route.workspace_id), route
    caller = caller_for(user=user, workspace_id=route.workspace_id) if user else None
    if caller is None:
        raise NoSuchAgent
    return caller, route


def _admit_with_custom_auth(
    route: Route,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
    auth_exchange: Callable[[], AuthExchange],
) -> Admission:
    """Admit to an agent with custom authentication: its own users, or platform members."""
    require_running(route)
    caller = _find_studio_caller(route, permission, headers, member)
    return Admission(route, headers, caller, auth_exchange(), is_studio=caller is not None)


def _find_studio_caller(
    route: Route,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
) -> Caller | None:
    """The platform member or key that calls the agent; None for the agent's own users."""
    auth = route.serving.auth
    if auth is None or auth.disable_studio_auth:
        return None
    secret = headers.get("X-Api-Key")
    has_platform_scheme = (headers.get("X-Auth-Scheme") or "").lower() == "langsmith"
    try:
        if secret or headers.get("Authorization"):
            if not (has_platform_scheme and secret):
                return None
            caller, _ = _resolve_platform_caller(route, secret, None)
        else:
            user = member()
            if user is None:
                return None
            caller, _ = _resolve_platform_caller(route, None, user)
    except (errors.Unauthenticated, errors.Forbidden, errors.NotFound):
        return None
    return caller if caller.may(permission) else None
