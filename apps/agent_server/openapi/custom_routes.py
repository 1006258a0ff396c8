"""What one deployment says otherwise than the description of all of them."""

from __future__ import annotations

from typing import Any

from apps.agent_server.openapi.document import document
from apps.agent_server.web.custom_paths import is_disabled
from apps.core.json import dumps, loads
from apps.deployments import routes
from apps.deployments.serving_config import ServingConfig


def document_of(slug: str) -> bytes:
    """The description of the agent of an address: what it shuts is left out, its own schemes in."""
    route = routes.find(slug)
    made = document(slug)
    if route is None or (route.serving.is_default_http and route.serving.auth is None):
        return made
    return dumps(_tailored(loads(made), route.serving))


def _tailored(made: dict[str, Any], serving: ServingConfig) -> dict[str, Any]:
    made["paths"] = {
        path: operations
        for path, operations in made["paths"].items()
        if not is_disabled(serving.http, path)
    }
    own = (serving.auth.openapi if serving.auth is not None else None) or {}
    # As the SDK's users write it: the names of OpenAPI, at the top or among `components`.
    schemes = own.get("securitySchemes") or (own.get("components") or {}).get("securitySchemes")
    if isinstance(schemes, dict):
        made["components"]["securitySchemes"] = schemes
    if isinstance(own.get("security"), list):
        made["security"] = own["security"]
    return made
