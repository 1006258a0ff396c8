"""The allowed targets of an agent's webhooks.

The platform allows public addresses only. An agent's `langgraph.json` may restrict them further.
With `disable_loopback: false` it also allows its own routes (an address such as `/done`) and, if
the operator permits it, addresses of this machine and its network.
"""

from __future__ import annotations

from django.conf import settings

from apps.deployments.langgraph_json.sections import Webhooks
from apps.deployments.routes import Route
from apps.webhooks import policy
from apps.webhooks.policy import MAX_URL_LENGTH, WebhookPolicy


def policy_of(webhooks: Webhooks) -> WebhookPolicy:
    """The policy of this section of a `langgraph.json`."""
    options = webhooks.url
    allows_loopback = not options.disable_loopback
    return WebhookPolicy(
        require_https=options.require_https,
        allowed_domains=tuple(name.lower() for name in options.allowed_domains or ()),
        allowed_ports=tuple(options.allowed_ports or ()),
        max_url_length=min(options.max_url_length or MAX_URL_LENGTH, MAX_URL_LENGTH),
        allows_own_routes=allows_loopback,
        allows_private=settings.ALLOW_PRIVATE_ADDRESSES
        or (allows_loopback and settings.ALLOW_LOCAL_WEBHOOKS),
    )


def validate(url: str, route: Route) -> str:
    """Validate the URL of a webhook of the agent. Raises `WebhookBlocked`."""
    return policy.validate(url, policy_of(route.serving.webhooks), route.organization_id)
