"""Assistants to find."""

from __future__ import annotations

from typing import Literal

from apps.agent_server.bodies.base import Body, JSONObject, Page, SortOrder


class AssistantCount(Body):
    metadata: JSONObject = {}
    graph_id: str | None = None
    name: str | None = None


class AssistantSearch(AssistantCount, Page):
    sort_by: Literal["assistant_id", "created_at", "updated_at", "name", "graph_id"] = "created_at"
    sort_order: SortOrder = "desc"
    select: (
        list[
            Literal[
                "assistant_id",
                "graph_id",
                "name",
                "description",
                "config",
                "context",
                "created_at",
                "updated_at",
                "metadata",
                "version",
            ]
        ]
        | None
    ) = None
