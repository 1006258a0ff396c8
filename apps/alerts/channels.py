"""The configurations of channels: validation, masking, and the requests that notify them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from django.conf import settings

from apps.alerts import errors
from apps.alerts.models import ActionTarget, AlertAction, AlertLevel
from apps.core.json import dumps
from apps.core.secrets import decrypt
from apps.organizations.models import User, Workspace
from apps.webhooks import policy
from apps.webhooks.delivery_worker import OutboundRequest
from apps.webhooks.email_request import EmailRequest
from apps.webhooks.signed_request import (
    MASK,
    build_signed_request,
    policy_of_installation,
    validate_headers,
)

MAX_RECIPIENTS = 20
MAX_BODY_BYTES = 10_000
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
_ROUTING_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEYS = {
    ActionTarget.WEBHOOK: {"url", "headers", "body"},
    ActionTarget.SLACK: {"url"},
    ActionTarget.PAGERDUTY: {"routing_key", "url"},
    ActionTarget.EMAIL: {"recipients"},
}
Config = dict[str, Any]


def validate_config(
    workspace_id: UUID, target: ActionTarget, config: Mapping[str, Any], stored: Config | None
) -> Config:
    """Return the configuration to store. Masked values are replaced by those of `stored`.

    A receiver at another host has to be given its secrets anew.

    Resolves host names, so it must run in a thread. Raises `InvalidAlert`, `WebhookBlocked` or
    `InvalidHeaders`.
    """
    unknown = sorted(set(config) - _KEYS[target])
    if unknown:
        raise errors.InvalidAlert(f"config: a {target} has no field `{unknown[0]}`.")
    match target:
        case ActionTarget.WEBHOOK:
            url = _validate_url(workspace_id, config.get("url"))
            known = _known_to(url, stored)
            return {
                "url": url,
                "headers": _validate_webhook_headers(config.get("headers"), known),
                "body": _validate_body(config.get("body")),
            }
        case ActionTarget.SLACK:
            address = config.get("url")
            if stored is not None and address == _mask_url(stored["url"]):
                address = stored["url"]
            return {"url": _validate_url(workspace_id, address)}
        case ActionTarget.PAGERDUTY:
            key = config.get("routing_key")
            if key != MASK:  # its form is told without looking up the address
                _validate_routing_key(key)
            url = _validate_url(workspace_id, config.get("url") or PAGERDUTY_URL)
            return {"routing_key": _unmask_routing_key(key, _known_to(url, stored)), "url": url}
        case ActionTarget.EMAIL:
            return {"recipients": _validate_recipients(workspace_id, config.get("recipients"))}


def _validate_url(workspace_id: UUID, url: object) -> str:
    if not isinstance(url, str) or not url:
        raise errors.InvalidAlert("config.url: required.")
    if url.startswith("/"):
        raise errors.InvalidAlert("config.url: must be an absolute address.")
    organization_id = Workspace.objects.values_list("organization_id", flat=True).get(
        pk=workspace_id
    )
    return policy.validate(url, policy_of_installation(), organization_id)


def _known_to(url: str, stored: Config | None) -> Config | None:
    """The stored configuration whose secrets the receiver at the address has got already.

    They are write-only, so another receiver does not get them either.
    """
    if stored is None:
        return None
    rules = policy_of_installation()
    is_same = rules.parse_target(url).origin == rules.parse_target(stored["url"]).origin
    return stored if is_same else None


def _validate_webhook_headers(headers: object, stored: Config | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise errors.InvalidAlert("config.headers: must be an object of texts.")
    known = stored["headers"] if stored is not None else {}
    return validate_headers(
        {
            name: known[name] if value == MASK and name in known else value
            for name, value in headers.items()
        }
    )


def _validate_body(body: object) -> Config:
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise errors.InvalidAlert("config.body: must be a JSON object.")
    if len(dumps(body)) > MAX_BODY_BYTES:
        raise errors.InvalidAlert(f"config.body: has at most {MAX_BODY_BYTES} bytes.")
    return body


def _validate_routing_key(key: object) -> None:
    if not isinstance(key, str) or _ROUTING_KEY.fullmatch(key) is None:
        raise errors.InvalidAlert("config.routing_key: must be an integration key.")


def _unmask_routing_key(key: object, stored: Config | None) -> object:
    if key != MASK:
        return key
    if stored is None:
        raise errors.InvalidAlert("config.routing_key: must be sent again for another address.")
    return stored["routing_key"]


def _validate_recipients(workspace_id: UUID, recipients: object) -> list[str]:
    if not isinstance(recipients, list) or not recipients:
        raise errors.InvalidAlert("config.recipients: must be a list of email addresses.")
    if len(recipients) > MAX_RECIPIENTS:
        raise errors.InvalidAlert(f"config.recipients: has at most {MAX_RECIPIENTS} addresses.")
    if not settings.EMAIL_HOST:
        raise errors.InvalidAlert("config: this installation has no mail server.")
    addresses = list(dict.fromkeys(str(address).strip().lower() for address in recipients))
    members = find_members(workspace_id, addresses)
    if strangers := sorted(set(addresses) - set(members)):
        raise errors.InvalidAlert(
            f"config.recipients: {strangers[0][:100]} is not a member of the workspace."
        )
    return addresses


def find_members(workspace_id: UUID, addresses: list[str]) -> list[str]:
    """Return the addresses of users who may enter the workspace, so that no other gets mail."""
    users = User.objects.filter(email__in=addresses, is_active=True).order_by("email")
    workspaces = Workspace.objects.all()
    return [
        user.email for user in users if workspaces.open_to(user).filter(pk=workspace_id).exists()
    ]


def mask_config(action: AlertAction) -> Config:
    """Return the configuration without its secrets."""
    config = action.config
    match action.target:
        case ActionTarget.WEBHOOK:
            return config | {"headers": dict.fromkeys(config["headers"], MASK)}
        case ActionTarget.SLACK:
            return {"url": _mask_url(config["url"])}
        case ActionTarget.PAGERDUTY:
            return config | {"routing_key": MASK}
    return config


def _mask_url(url: str) -> str:
    """Mask the path, because the addresses of chat channels are credentials."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{MASK}", "", ""))


def describe_channel(action: AlertAction) -> str:
    """Return a short text that names the channel without its secrets."""
    config = mask_config(action)
    if action.target == ActionTarget.EMAIL:
        return ", ".join(config["recipients"])
    return urlsplit(config["url"]).netloc if action.target == ActionTarget.SLACK else config["url"]


def split_notice(action: AlertAction, notice: Config) -> list[Config]:
    """Return the payload of each delivery of the notice.

    Each recipient of a mail has a delivery, so that a failure repeats the mail of no other.
    """
    if action.target != ActionTarget.EMAIL:
        return [notice]
    return [notice | {"recipient": address} for address in action.config["recipients"]]


def build_channel_request(
    action: AlertAction, notice: Mapping[str, Any], message_id: str
) -> OutboundRequest:
    """Return the request that tells the channel about the notice. Raises `WebhookBlocked`."""
    if action.target == ActionTarget.EMAIL:
        addresses = action.config["recipients"]
        if "recipient" in notice:
            addresses = [address for address in addresses if address == notice["recipient"]]
        recipients = find_members(action.workspace_id, addresses)
        return EmailRequest(notice["title"], _build_text(notice), recipients)
    config = action.config
    body = _BODIES[ActionTarget(action.target)](config, notice)
    is_webhook = action.target == ActionTarget.WEBHOOK
    return build_signed_request(
        config["url"],
        config["headers"] if is_webhook else {},
        decrypt(action.secret) if is_webhook else None,
        message_id,
        dumps(body),
    )


def _build_webhook_body(config: Config, notice: Mapping[str, Any]) -> Config:
    return {**config["body"], **notice}


def _build_slack_body(_: Config, notice: Mapping[str, Any]) -> Config:
    return {"text": f"*{_escape(notice['title'])}*\n{_escape(_build_text(notice))}"}


def _escape(text: str) -> str:
    """Escape the control characters of Slack's markup, so that names cannot mention people."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _build_pagerduty_body(config: Config, notice: Mapping[str, Any]) -> Config:
    is_over = notice["status"] == "recovered"
    event: Config = {
        "routing_key": config["routing_key"],
        "event_action": "resolve" if is_over else "trigger",
        "dedup_key": notice["incident_id"],
    }
    if is_over:
        return event
    severities = {AlertLevel.CRITICAL: "critical", AlertLevel.WARNING: "warning"}
    return event | {
        "payload": {
            "summary": notice["title"][:1024],
            "source": notice["project_name"] or "Slipway",
            "severity": severities.get(notice["level"], "info"),
            "timestamp": notice["timestamp"],
            "custom_details": {
                name: notice[name]
                for name in (
                    *("alert_rule_name", "triggered_metric_value", "triggered_threshold"),
                    *("window_minutes", "text"),
                )
            },
        },
        "links": [{"href": notice["url"], "text": "Open the alert"}],
    }


def _build_text(notice: Mapping[str, Any]) -> str:
    parts = [notice["text"], notice["description"], notice["url"]]
    return "\n\n".join(part for part in parts if part)


_BODIES: dict[ActionTarget, Callable[[Config, Mapping[str, Any]], Config]] = {
    ActionTarget.WEBHOOK: _build_webhook_body,
    ActionTarget.SLACK: _build_slack_body,
    ActionTarget.PAGERDUTY: _build_pagerduty_body,
}
