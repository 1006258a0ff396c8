"""Who may enter an Agent Server: a key or a member of where the agent is deployed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from apps.agent_server.errors import NoSuchAgent
from apps.api_keys.authentication import key_in
from apps.api_keys.services import caller_of
from apps.core import errors
from apps.core.access import Caller
from apps.deployments import routes
from apps.deployments.routes import Route
from apps.organizations.models import User
from apps.organizations.services import caller_for


@dataclass(frozen=True, slots=True)
class Admission:
    """An authenticated caller at the agent of an address."""

    route: Route
    caller: Caller


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
