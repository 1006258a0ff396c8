"""Requests for threads."""

from __future__ import annotations

import re
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import Field, field_validator, model_validator

from apps.agent_server.schemas.base import Body, JSONObject, Page, Query, SortOrder
from apps.agent_server.schemas.runs import CommandBody
from apps.agent_server.statuses import ThreadStatus, TTLStrategy
from apps.core.errors import Invalid

MAX_EXTRACTS = 10
_MAX_TTL_MINUTES = 100 * 366 * 24 * 60
_PATH = re.compile(r"(values|metadata|config|interrupts)((?:\.[^.\[\]]+|\[-?\d{1,9}\])*)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(-?\d+)\]")


class TTL(Body):
    """How long a thread is kept after its last activity, and what happens to it then."""

    ttl: float = Field(gt=0, le=_MAX_TTL_MINUTES)
    """Minutes."""
    strategy: TTLStrategy = TTLStrategy.DELETE


class SuperstepUpdate(Body):
    values: JSONObject | list[Any] | None = None
    command: CommandBody | None = None
    as_node: str


class Superstep(Body):
    updates: list[SuperstepUpdate] = Field(min_length=1)


class NewThread(Body):
    verbatim_fields = frozenset({"supersteps"})

    thread_id: UUID | None = None
    metadata: JSONObject = {}
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: TTL | None = None
    supersteps: list[Superstep] = Field([], max_length=1000)


class ThreadChanges(Body):
    metadata: JSONObject = {}
    ttl: TTL | None = None


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
    extract: dict[str, str] = Field({}, max_length=MAX_EXTRACTS)

    @field_validator("extract")
    @classmethod
    def _has_valid_paths(cls, extract: dict[str, str]) -> dict[str, str]:
        for path in extract.values():
            parse_path(path)
        return extract


def parse_path(path: str) -> tuple[str, list[str]]:
    """The column and the steps below it of a path such as `values.messages[-1].content`."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError(
            f"{path!r} is not a path: a path begins with values, metadata, config or interrupts, "
            "followed by .name, [0] or [-1]"
        )
    column, steps = match.groups()
    return column, [name or index for name, index in _STEP.findall(steps)]


class Prune(Body):
    thread_ids: list[UUID] = Field(max_length=1000)
    strategy: TTLStrategy = TTLStrategy.DELETE


class ThreadQuery(Query):
    include: list[str] = Field([], json_schema_extra={"items": {"enum": ["ttl"]}})


STREAM_CONTENTS = frozenset({"run_modes", "lifecycle", "state_update"})


class ThreadStreamQuery(Query):
    """The protocol's documentation names the parameter `stream_modes`, clients `stream_mode`."""

    stream_modes: list[str] = []
    stream_mode: list[str] = []

    @property
    def modes(self) -> frozenset[str]:
        return frozenset([*self.stream_modes, *self.stream_mode] or ["run_modes"])

    @model_validator(mode="after")
    def _has_known_modes(self) -> Self:
        for mode in (*self.stream_modes, *self.stream_mode):
            if mode not in STREAM_CONTENTS:
                supported = ", ".join(sorted(STREAM_CONTENTS))
                raise Invalid(f"stream_modes: '{mode}' is not one of {supported}")
        return self
