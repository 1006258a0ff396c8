"""The agent card of an assistant."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server.a2a.params import INPUT_MODES, OUTPUT_MODES
from apps.agent_server.models import Assistant
from apps.deployments.routes import Route, agent_url

JSONObject = dict[str, Any]
_KEY_HEADER = "X-Api-Key"


def interface_url(route: Route, assistant_id: UUID) -> str:
    return f"{agent_url(route.slug)}{route.serving.mount_prefix}/a2a/{assistant_id}"


def build_card(route: Route, assistant: Assistant) -> JSONObject:
    """The card as A2A 1.0 defines it; the schema allows no further fields."""
    card: JSONObject = {
        **_describe(assistant),
        "supportedInterfaces": [
            {
                "url": interface_url(route, assistant.assistant_id),
                "protocolBinding": binding,
                "protocolVersion": "1.0",
            }
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": not route.serving.http.disable_webhooks,
            "extendedAgentCard": False,
        },
    }
    if route.serving.auth is None:
        scheme = {"apiKeySecurityScheme": {"location": "header", "name": _KEY_HEADER}}
        card["securitySchemes"] = {"apiKey": scheme}
        card["securityRequirements"] = [{"schemes": {"apiKey": {"list": []}}}]
    return card


def build_legacy_card(route: Route, assistant: Assistant) -> JSONObject:
    """The card as A2A 0.3 defines it."""
    card: JSONObject = {
        **_describe(assistant),
        "protocolVersion": "0.3.0",
        "url": interface_url(route, assistant.assistant_id),
        "preferredTransport": "JSONRPC",
        "capabilities": {
            "streaming": True,
            "pushNotifications": not route.serving.http.disable_webhooks,
            "stateTransitionHistory": False,
        },
    }
    if route.serving.auth is None:
        scheme = {"type": "apiKey", "in": "header", "name": _KEY_HEADER}
        card["securitySchemes"] = {"apiKey": scheme}
        card["security"] = [{"apiKey": []}]
    return card


def build_combined_card(route: Route, assistant: Assistant) -> JSONObject:
    """The card for a client that names no version: readers of 1.0 and of 0.3 find their fields.

    Clients of 0.3 send no version when they fetch the card, and those of 1.0 ignore other fields.
    """
    return _merge(build_card(route, assistant), build_legacy_card(route, assistant))


def _merge(card: JSONObject, legacy: JSONObject) -> JSONObject:
    """The fields of both; an object has the members of both."""
    merged = {**legacy, **card}
    for name in card.keys() & legacy.keys():
        if isinstance(card[name], dict):
            merged[name] = _merge(card[name], legacy[name])
    return merged


def _describe(assistant: Assistant) -> JSONObject:
    """The fields that both versions have."""
    name = assistant.name or assistant.graph_id
    description = assistant.description or f"The assistant {name}."
    skill = {
        "id": str(assistant.assistant_id),
        "name": name,
        "description": description,
        "tags": [assistant.graph_id],
    }
    return {
        "name": name,
        "description": description,
        "version": str(assistant.version),
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": [skill],
    }
