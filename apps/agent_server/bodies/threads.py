"""Threads to make, change and find, and their states."""

from __future__ import annotations

from typing import Any, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from apps.agent_server import errors
from apps.agent_server.bodies.base import Body, CheckpointReference, JSONObject, Page, SortOrder
from apps.agent_server.statuses import ThreadStatus
from apps.core.errors import Invalid


class NewThread(Body):
    thread_id: UUID | None = None
    metadata: JSONObject = {}
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: Any = None
    supersteps: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        for name in ("ttl", "supersteps"):
            if getattr(self, name):
                raise errors.NotOffered(name)
        return self


class ThreadChanges(Body):
    metadata: JSONObject = {}
    ttl: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        if self.ttl is not None:
            raise errors.NotOffered("ttl")
        return self


ThreadField = Literal[
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "config",
    "status",
    "values",
    "interrupts",
]


class ThreadCount(Body):
    metadata: JSONObject = {}
    values: JSONObject = {}
    status: ThreadStatus | None = None


class ThreadSearch(ThreadCount, Page):
    ids: list[UUID] | None = None
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] = (
        "updated_at"
    )
    sort_order: SortOrder = "desc"
    select: list[ThreadField] | None = None
    extract: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        if self.extract:
            raise errors.NotOffered("extract")
        return self


class HistoryBody(Body):
    limit: int = Field(1, ge=1, le=1000)
    before: JSONObject | str | None = None
    metadata: JSONObject | None = None
    checkpoint: CheckpointReference | None = None

    @property
    def before_id(self) -> str | None:
        """The checkpoint's id, from whichever of the forms that clients send."""
        before = self.before
        if isinstance(before, dict):
            inner = before.get("configurable")
            before = (inner if isinstance(inner, dict) else before).get("checkpoint_id")
        if not before:
            return None
        try:
            return str(UUID(str(before)))
        except ValueError:
            raise Invalid("before: must name a checkpoint by its UUID") from None


class StateBody(Body):
    checkpoint: CheckpointReference
    subgraphs: bool = False


class StateUpdate(Body):
    values: JSONObject | list[Any] | None = None
    as_node: str | None = None
    checkpoint: CheckpointReference | None = None
    checkpoint_id: UUID | None = None
