"""How far one request reaches: what every service of an Agent Server is told first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from apps.core.json import loads
from apps.deployments.routes import Route

Resource = Literal["assistants", "threads", "crons", "store"]
Action = Literal[
    "create",
    "read",
    "update",
    "delete",
    "search",
    "create_run",
    "put",
    "get",
    "list_namespaces",
]


@dataclass(frozen=True, slots=True)
class Scope:
    """One agent, and which of its rows this caller may see.

    A row is there for the caller when its metadata contains `visible`; a run is where its thread
    is. Without rules of the agent's own everything is visible to who was admitted.
    """

    route: Route
    visible: str = "{}"
    """JSON, compared by PostgreSQL's `@>`."""
    user: dict[str, Any] | None = None
    """Who the agent's own authentication says the caller is."""
    value: dict[str, Any] = field(default_factory=dict)
    """What the caller asks for, as the agent's own rules left it."""
    graph_context: Mapping[str, Any] = field(default_factory=dict)
    """What graphs are told of the caller in `configurable`: who it is, headers that are let in."""

    @property
    def key(self) -> list[UUID]:
        """What every client-visible id is unique within."""
        return [self.route.workspace_id, self.route.deployment_id]

    @property
    def user_id(self) -> str | None:
        """The user's id, for rows that remember on whose behalf they act."""
        return None if self.user is None else str(self.user["identity"])

    @property
    def owner_metadata(self) -> dict[str, Any]:
        """Metadata of a row that is made on the side: with it, its maker sees it."""
        mark: dict[str, Any] = loads(self.visible)
        return mark

    def configured(self, configurable: Mapping[str, Any]) -> dict[str, Any]:
        """What a client configures, under what the server itself says of the caller.

        Nobody configures who they are.
        """
        own = {n: v for n, v in configurable.items() if not n.startswith("langgraph_auth_")}
        return {**own, **self.graph_context}

    def unfiltered(self) -> Scope:
        """All of the agent: for what the platform itself does, and to find out what is amiss."""
        return replace(self, visible="{}")


def graph_context_for(user: Mapping[str, Any]) -> dict[str, Any]:
    """How graphs know on whose behalf they run."""
    return {
        "langgraph_auth_user": user,
        "langgraph_auth_user_id": user["identity"],
        "langgraph_auth_permissions": user["permissions"],
        "user_id": user["identity"],
    }
