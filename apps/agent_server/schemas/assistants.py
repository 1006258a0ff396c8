"""Requests for assistants."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BeforeValidator, Field, model_validator

from apps.agent_server import errors
from apps.agent_server.schemas.base import Body, Flag, JSONObject, Page, Query, SortOrder
from apps.agent_server.schemas.runs import RunConfig
from apps.core.errors import Invalid

_LEVELS = re.compile(r"[0-9]{1,4}")

AssistantField = Literal[
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


class AssistantSettings(Body):
    """The settings of an assistant."""

    config: RunConfig | None = None
    context: JSONObject | None = None
    metadata: JSONObject = {}
    description: str | None = None

    @model_validator(mode="after")
    def _has_config_or_context(self) -> Self:
        if self.context and self.config is not None and self.config.has_settings:
            raise errors.ConfigAndContext
        return self

    def mirrored(self, config: JSONObject, context: JSONObject) -> tuple[JSONObject, JSONObject]:
        """Replace `config` or `context` by these settings, and mirror one in the other."""
        if self.config is not None:
            config = self.config.model_dump(mode="json", exclude_unset=True)
            context = self.context or config.get("configurable") or {}
        elif self.context is not None:
            context = self.context
        else:
            return config, context
        other_fields = {name: value for name, value in config.items() if name != "configurable"}
        return ({**other_fields, "configurable": context} if context else other_fields), context


class NewAssistant(AssistantSettings):
    graph_id: str = Field(min_length=1, max_length=255)
    assistant_id: UUID | None = None
    if_exists: Literal["raise", "do_nothing"] = "raise"
    name: str = Field("Untitled", max_length=255)


class AssistantChanges(AssistantSettings):
    graph_id: str | None = Field(None, min_length=1, max_length=255)
    name: str | None = Field(None, max_length=255)


class VersionSearch(Page):
    metadata: JSONObject = {}


class LatestVersion(Body):
    version: int = Field(ge=1, le=2**31 - 1)


class AssistantCount(Body):
    metadata: JSONObject = {}
    graph_id: str | None = None
    name: str | None = None


class AssistantSearch(AssistantCount, Page):
    sort_by: Literal["assistant_id", "created_at", "updated_at", "name", "graph_id"] = "created_at"
    sort_order: SortOrder = "desc"
    select: list[AssistantField] | None = None


class DeleteAssistantQuery(Query):
    delete_threads: Flag = False


def _parse_xray(text: Any) -> Any:
    if isinstance(text, bool):
        return text
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _LEVELS.fullmatch(text):
        raise Invalid("xray: must be true, false or a number of levels")
    return int(text) or False


class GraphQuery(Query):
    """`xray` draws nested graphs: all of them, or that many levels."""

    xray: Annotated[bool | Annotated[int, Field(ge=0)], BeforeValidator(_parse_xray)] = False


class SubgraphsQuery(Query):
    """`recurse` includes the subgraphs of subgraphs."""

    recurse: Flag = False
