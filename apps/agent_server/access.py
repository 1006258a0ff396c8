"""Who may enter an Agent Server: a key or a member of where the agent is deployed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from apps.agent_server.errors import NoSuchAgent
from apps.agent_server.scope import Action, Resource, Scope
from apps.api_keys.authentication import key_in
from apps.api_keys.services import caller_of
from apps.core import errors
from apps.core.access import Caller
from apps.deployments import routes
from apps.deployments.routes import Route
from apps.organizations.models import User
from apps.organizations.services import caller_for

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Admission:
    """An authenticated caller at the agent of an address."""

    route: Route
    caller: Caller

    def scope(self, resource: Resource, action: Action, **value: Any) -> Scope:
        """What the caller may see of the agent when doing this; for a thread, it may ask the agent.

        `value` is what is asked for, as the agent's own rules are told: ids, as text.
        """
        return Scope(self.route, value=value)

    def grant(self, resource: Resource, action: Action, body: B, **value: Any) -> tuple[Scope, B]:
        """The same for a body, which comes back as the agent's own rules left it."""
        return self.scope(resource, action, **value), body


def admit(
    slug: str,
    permission: str,
    headers: Mapping[str, str],
    member: Callable[[], User | None],
) -> Admission:
    """Let the caller in or raise: no key 401, an agent of strangers 404, too weak a key 403.

    `member` finds the person of a browser session; it is asked only where no key is sent.
    """
    secret = key_in(headers)
    person = None if secret else member()
    if not secret and person is None:
        raise errors.Unauthenticated
    caller = caller_of(secret=secret) if secret else None
    route = routes.find(slug)
    if route is None:
        raise NoSuchAgent
    if person is not None:
        caller = caller_for(user=person, workspace_id=route.workspace_id)
    if caller is None or caller.organization_id != route.organization_id:
        raise NoSuchAgent
    if secret and caller.workspace_id != route.workspace_id:
        caller = caller_of(secret=secret, workspace_id=route.workspace_id)
    caller.require(permission)
    return Admission(route, caller)
