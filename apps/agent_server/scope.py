"""The scope of a request: its deployment and the rows that the caller may see."""

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
    """One agent and the filter of the rows that the caller may see.

    A row is visible if its metadata contains `visible`; a run is visible if its thread is. Without
    custom authorization every admitted caller sees all rows.
    """

    route: Route
    visible: str = "{}"
    """JSON, compared by PostgreSQL's `@>`."""
    user: dict[str, Any] | None = None
    """The user that custom authentication returned."""
    value: dict[str, Any] = field(default_factory=dict)
    """The requested ids and fields, with the changes of the agent's handler."""
    graph_context: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `configurable` that describe the caller: the user and allowed headers."""

    @property
    def key(self) -> list[UUID]:
        """Workspace and deployment, within which each client-visible id is unique."""
        return [self.route.workspace_id, self.route.deployment_id]

    @property
    def user_id(self) -> str | None:
        """The user's id, for rows that act on the user's behalf."""
        return None if self.user is None else str(self.user["identity"])

    @property
    def owner_metadata(self) -> dict[str, Any]:
        """Metadata that makes an implicitly created row visible to its creator."""
        metadata: dict[str, Any] = loads(self.visible)
        return metadata

    def configured(self, configurable: Mapping[str, Any]) -> dict[str, Any]:
        """The client's configuration, overridden by the caller's fields.

        A client cannot configure its own identity.
        """
        fields = {n: v for n, v in configurable.items() if not n.startswith("langgraph_auth_")}
        return {**fields, **self.graph_context}

    def unfiltered(self) -> Scope:
        """The scope of all rows of the agent, for the platform's own work and error messages."""
        return replace(self, visible="{}")


def graph_context_for(user: Mapping[str, Any]) -> dict[str, Any]:
    """The configurable fields that identify the user to graphs."""
    return {
        "langgraph_auth_user": user,
        "langgraph_auth_user_id": user["identity"],
        "langgraph_auth_permissions": user["permissions"],
        "user_id": user["identity"],
    }
