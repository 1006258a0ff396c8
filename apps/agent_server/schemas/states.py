"""Requests for states of threads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from apps.agent_server.schemas.base import (
    Body,
    CheckpointKey,
    CheckpointReference,
    Flag,
    JSONObject,
    Query,
    parse_checkpoint_id,
)
from apps.core.errors import Invalid

FIELDS = frozenset(
    {
        "values",
        "next",
        "tasks",
        "metadata",
        "created_at",
        "checkpoint",
        "parent_checkpoint",
        "interrupts",
        "checkpoint_id",
        "parent_checkpoint_id",
    }
)


class HistoryBody(Body):
    limit: int = Field(1, ge=1, le=1000)
    before: JSONObject | str | None = None
    metadata: JSONObject | None = None
    checkpoint: CheckpointReference | None = None

    @property
    def before_id(self) -> str | None:
        """The checkpoint's id. Clients send the id, a reference or a whole configuration."""
        before = self.before
        if isinstance(before, dict):
            inner = before.get("configurable")
            before = (inner if isinstance(inner, dict) else before).get("checkpoint_id")
        return str(parse_checkpoint_id("before", before)) if before else None

    @property
    def checkpoint_keys(self) -> list[CheckpointKey]:
        """The checkpoints that the request refers to."""
        keys = self.checkpoint.keys if self.checkpoint is not None else []
        if self.before_id is not None:
            keys = [*keys, CheckpointKey("before", UUID(self.before_id), None)]
        return keys


class StateBody(Body):
    checkpoint: CheckpointReference
    subgraphs: bool = False
    select: list[str] | None = None


class StateUpdate(Body):
    verbatim_fields = frozenset({"values"})

    values: JSONObject | list[Any] | None = None
    as_node: str | None = None
    checkpoint: CheckpointReference | None = None
    checkpoint_id: UUID | None = None

    @property
    def base(self) -> dict[str, Any] | None:
        """The checkpoint to build on; None for the head."""
        if self.checkpoint is not None:
            return self.checkpoint.model_dump(mode="json", exclude_none=True)
        return {"checkpoint_id": str(self.checkpoint_id)} if self.checkpoint_id else None

    @property
    def checkpoint_keys(self) -> list[CheckpointKey]:
        """The checkpoints that the request refers to."""
        if self.checkpoint is not None:
            return self.checkpoint.keys
        if self.checkpoint_id is None:
            return []
        return [CheckpointKey("checkpoint_id", self.checkpoint_id, "")]


class StatePatch(Body):
    metadata: JSONObject = {}


class StateQuery(Query):
    subgraphs: Flag = False
    select: list[str] = []


class HistoryQuery(Query):
    limit: int = Field(1, ge=1, le=1000)
    before: str | None = Field(None, json_schema_extra={"format": "uuid"})


def validate_select(names: list[str]) -> list[str]:
    """Return the names if all are fields or `values.<key>`; others are `Invalid`."""
    for name in names:
        if name not in FIELDS and not (name.startswith("values.") and len(name) > len("values.")):
            raise Invalid(f"select: unknown field '{name}'")
    return names
