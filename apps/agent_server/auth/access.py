"""Authentication and authorization at an Agent Server.

An agent without custom authentication accepts keys and members of its workspace. An agent with
`auth` in its langgraph.json decides itself: its code is called once per request with the requested
resource and action. A platform key then counts only with `X-Auth-Scheme: langsmith`, and a session
only for members in the console; `disable_studio_auth` disables both.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from apps.agent_server.auth import loopback, rules
from apps.agent_server.auth.custom_auth import AuthExchange, user_cache
from apps.agent_server.errors import NoSuchAgent
from apps.agent_server.scope import Action, Resource, Scope, graph_context_for
from apps.api_keys.authentication import api_key_from_headers
from apps.api_keys.services import caller_for_key, get_key_info
from apps.core import errors
from apps.core import request_context as origins
from apps.core.callers import Caller
from apps.deployments import routes
from apps.deployments.langgraph_json.sections import HeaderRules
from apps.deployments.routes import Route
from apps.deployments.serving_config import STUDIO_USER
from apps.organizations.models import User
from apps.organizations.services import caller_for
from apps.rate_limits.checks import check_anonymous, check_deployment

B = TypeVar("B")

# What configures nothing, however a deployment lists its headers: credentials.
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "x-tenant-id"})


@dataclass(frozen=True, slots=True)
class Admission:
    """A caller at the agent of an address, whom the platform or the agent's own code knows."""

    _route: Route
    headers: Mapping[str, str]
    caller: Caller | None
    """None where the agent's own code decides."""
    auth_exchange: AuthExchange | None = None
    """Set where the agent's own code has to be asked."""
    studio: bool = False
    """Somebody of the platform, at an agent with rules of its own."""

    @property
    def route(self) -> Route:
        """The agent's route. Who has not been asked for a right is at least known by name."""
        self.user()
        return self._route

    def count(self, auth_exchange: Callable[[], AuthExchange]) -> None:
        """Count the request on the deployment's own limit, if it has one.

        The agent's own graphs are not counted, and a request that is begun again is the same.
        """
        limit, is_graph = self._route.limit, self.caller is None and self.auth_exchange is None
        if limit is None or is_graph or auth_exchange().is_counted:
            return
        check_deployment("Deployment", str(self._route.deployment_id), limit)
        auth_exchange().is_counted = True

    def user(self) -> dict[str, Any] | None:
        """Who the agent's own authentication says it is; None for agents without one."""
        if self.studio:
            return STUDIO_USER
        if self.auth_exchange is None:
            return None
        if self._known() is None:
            self._ask({})
        return self._known()

    def resolve_scope(self, resource: Resource, action: Action, **value: Any) -> Scope:
        """What the caller may see of the agent when doing this; for a thread, it may ask the agent.

        `value` is what is asked for, as the agent's own rules are told: ids, as text.
        """
        scope, _ = self.authorize(resource, action, None, **value)
        return scope

    def authorize(
        self, resource: Resource, action: Action, body: B, **value: Any
    ) -> tuple[Scope, B]:
        """The same for a body, which comes back as the agent's own rules left it."""
        if self.auth_exchange is None:
            return Scope(self._route, value=value, graph_context=self._graph_context(None)), body
        before = rules.describe_value(resource, action, body, value)
        question = {"resource": resource, "action": action, "value": before}
        has_rules = self._route.serving.has_auth_rule(resource, action)
        answer = self._ask(question) if has_rules else {"value": before}
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

    # Asking

    def _known(self) -> dict[str, Any] | None:
        """Who it is, as far as that was asked or is remembered."""
        if self.studio:
            return STUDIO_USER
        if self.auth_exchange is None:
            return None
        if self.auth_exchange.user is None:
            self.auth_exchange.user = user_cache.get(self._route, self.headers)
        return self.auth_exchange.user

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Put a question to the agent's code; who it is comes with the first answer."""
        assert self.auth_exchange is not None  # noqa: S101
        user = self._known()
        who = {"request": self.auth_exchange.facts} if user is None else {"user": user}
        answer = self.auth_exchange.answer(self._route, who, question)
        if "refused" in answer:
            raise rules.refusal_error(answer["refused"])
        if user is None:
            self.auth_exchange.user = answer["user"]
            user_cache.keep(self._route, self.headers, answer["user"])
        return answer

    def _graph_context(self, user: dict[str, Any] | None) -> dict[str, Any]:
        """What graphs are told of the caller, beside what the caller configures."""
        told: dict[str, Any] = {}
        listed = self._route.serving.http.configurable_headers
        if listed is not None:
            told |= {
                name.lower(): value
                for name, value in self.headers.items()
                if matches_header_rules(name.lower(), listed)
                and name.lower() not in _CREDENTIAL_HEADERS
            }
        if user is not None:
            told |= graph_context_for(user)
        return told


def matches_header_rules(name: str, listed: HeaderRules) -> bool:
    """Whether the rules include a header, by its name in lower case."""
    if any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in listed.excludes):
        return False
    return any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in listed.includes)


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
    valid key count on the catch-all rate limit of their address, admitted ones on the deployment's
    own limit, if any; 429 when a limit is used up.
    """
    try:
        admission = _admit(slug, permission, headers, member, auth_exchange)
    except errors.Unauthenticated:
        origin = origins.current()
        check_anonymous((origin and origin.ip) or "")
        raise
    admission.count(auth_exchange)
    return admission


def _admit(
    slug: str,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
    auth_exchange: Callable[[], AuthExchange],
) -> Admission:
    if headers.get(loopback.HEADER):
        return Admission(loopback.route_for_token(headers[loopback.HEADER], slug), headers, None)
    has_own = (known := routes.find(slug)) is not None and known.serving.auth is not None
    if known is not None and has_own:
        return _admit_with_custom_auth(known, permission, headers, member, auth_exchange)
    secret = api_key_from_headers(headers)
    person = None if secret else member()
    if not secret and person is None:
        raise errors.Unauthenticated
    caller, route = _resolve_platform_caller(known, secret, person)
    caller.require(permission)
    return Admission(route, headers, caller)


def _resolve_platform_caller(
    route: Route | None, secret: str | None, person: User | None
) -> tuple[Caller, Route]:
    """Somebody who may see where the agent is deployed."""
    holder = get_key_info(secret=secret) if secret else None
    if route is None:
        raise NoSuchAgent
    if secret and holder is not None:
        if holder.organization_id != route.organization_id:
            raise NoSuchAgent
        return caller_for_key(secret=secret, workspace_id=route.workspace_id), route
    caller = caller_for(user=person, workspace_id=route.workspace_id) if person else None
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
    """Who enters an agent with authentication of its own: visitors, or the platform's people."""
    caller = _find_studio_caller(route, permission, headers, member)
    return Admission(route, headers, caller, auth_exchange(), studio=caller is not None)


def _find_studio_caller(
    route: Route,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
) -> Caller | None:
    """Somebody of the platform who says so and can prove it; None for everybody else."""
    auth = route.serving.auth
    if auth is None or auth.disable_studio_auth:
        return None
    secret = headers.get("X-Api-Key")
    says_so = (headers.get("X-Auth-Scheme") or "").lower() == "langsmith"
    try:
        if secret or headers.get("Authorization"):
            if not (says_so and secret):
                return None
            caller, _ = _resolve_platform_caller(route, secret, None)
        else:
            person = member()
            if person is None:
                return None
            caller, _ = _resolve_platform_caller(route, None, person)
    except (errors.Unauthenticated, errors.Forbidden, errors.NotFound):
        return None
    return caller if caller.may(permission) else None
