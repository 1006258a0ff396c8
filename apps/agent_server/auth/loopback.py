"""Short-lived signed tokens with which an agent's graphs call their own deployment.

The platform signs one for each request from the socket of a graph host. It is valid for that
host's deployment only, and agent code never sees it.
"""

from __future__ import annotations

from uuid import UUID

from django.core import signing

from apps.agent_server.errors import NoSuchAgent
from apps.core import errors
from apps.deployments import routes
from apps.deployments.routes import Route

HEADER = "X-Slipway-Loopback"
_SALT = "slipway.agent-server.loopback"
_MAX_AGE_SECONDS = 600


def make_token(deployment_id: UUID) -> str:
    """Sign a token for requests of the deployment's own graphs."""
    return signing.dumps(str(deployment_id), salt=_SALT)


def route_for_token(value: str, slug: str) -> Route:
    """The route of the token's deployment. Raises if `slug` belongs to another one."""
    try:
        deployment_id = signing.loads(value, salt=_SALT, max_age=_MAX_AGE_SECONDS)
    except signing.BadSignature:
        raise errors.Unauthenticated from None
    route = routes.find_route(slug)
    if route is None or str(route.deployment_id) != deployment_id:
        raise NoSuchAgent
    return route
