"""What the store of runs gives and takes: plain values, no database in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from apps.core.json import Fragment
from apps.trace_store.dotted_order import TreePosition
from apps.trace_store.filters.nodes import Expression

RunKey = tuple[UUID, UUID, datetime]
"""The id, the project and the partition time of a run."""


@dataclass(frozen=True, slots=True, order=True)
class ChangedRun:
    """The key of a stored run that was written or deleted, and its trace."""

    run_id: UUID
    project_id: UUID
    partition_time: datetime
    trace_id: UUID


class RunType(StrEnum):
    CHAIN = "chain"
    LLM = "llm"
    TOOL = "tool"
    RETRIEVER = "retriever"
    EMBEDDING = "embedding"
    PROMPT = "prompt"
    PARSER = "parser"


class Status(StrEnum):
    PENDING = "pending"
    SUCCESS = "success"
    ERROR = "error"


class Payload(StrEnum):
    """The large parts of a run, stored compressed and read only when asked for."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    EXTRA = "extra"
    EVENTS = "events"
    ERROR = "error"
    SERIALIZED = "serialized"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money; `None` means that nothing was said about it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cost: Decimal | None = None
    completion_cost: Decimal | None = None
    total_cost: Decimal | None = None
    details: Mapping[str, Mapping[str, Any]] | None = None
    """`prompt_token_details`, `completion_token_details`, `prompt_cost_details`,
    `completion_cost_details`: what a client told beyond the sums."""

    @property
    def is_known(self) -> bool:
        return self.total_tokens is not None or self.total_cost is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    name: str
    path: str
    """Where object storage keeps it."""
    mime_type: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as lists show it."""

    workspace_id: UUID
    project_id: UUID
    id: UUID
    trace_id: UUID
    parent_run_id: UUID | None
    dotted_order: str
    partition_time: datetime
    """The time in the run's own segment of its dotted order; partitions and lists go by it."""
    name: str
    run_type: str
    start_time: datetime
    end_time: datetime | None
    first_token_time: datetime | None
    received_at: datetime
    error_preview: str | None
    inputs_preview: str | None
    outputs_preview: str | None
    tags: Sequence[str]
    metadata_json: Fragment
    """An object, as it was sent."""
    thread_key: str | None
    model: str | None
    reference_example_id: UUID | None
    attachments: Sequence[Attachment]
    usage: Usage
    """A model call's own, else the sum over the runs below it: see `store.totals`."""
    price_model_id: UUID | None = None
    """The entry of the price map that its cost was computed by."""

    @property
    def metadata(self) -> dict[str, Any]:
        # The standard library's parser keeps numbers of any length.
        found: dict[str, Any] = json.loads(self.metadata_json)
        return found

    @property
    def is_root(self) -> bool:
        return self.parent_run_id is None

    @property
    def is_model_call(self) -> bool:
        return self.run_type == RunType.LLM

    @property
    def depth(self) -> int:
        """0 for a root."""
        return self.dotted_order.count(".")

    @property
    def status(self) -> Status:
        if self.error_preview is not None:
            return Status.ERROR
        return Status.PENDING if self.end_time is None else Status.SUCCESS

    @property
    def latency(self) -> timedelta | None:
        return None if self.end_time is None else self.end_time - self.start_time

    @property
    def total_tokens(self) -> int | None:
        return self.usage.total_tokens

    @property
    def parent_run_ids(self) -> list[UUID]:
        """From the root to the parent."""
        return [UUID(segment[-36:]) for segment in self.dotted_order.split(".")[:-1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run with those of its payloads that were asked for, each as the JSON that was sent."""

    row: RunRow
    payloads: Mapping[Payload, Fragment]

    def json(self, payload: Payload) -> Fragment | None:
        return self.payloads.get(payload)

    def value(self, payload: Payload) -> Any:
        """The payload as Python values; `None` when the run has none."""
        text = self.payloads.get(payload)
        return None if text is None else json.loads(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs. What is `None` does not limit; everything given must hold."""

    project_ids: Sequence[UUID] | None = None
    run_ids: Sequence[UUID] | None = None
    trace_id: UUID | None = None
    parent_run_id: UUID | None = None
    reference_example_ids: Sequence[UUID] | None = None
    run_type: str | None = None
    is_root: bool | None = None
    has_error: bool | None = None
    started_from: datetime | None = None
    """Runs that started then or later."""
    started_until: datetime | None = None
    """Runs that started then or earlier."""
    where: Expression | None = None
    """What must be true of the run itself."""
    where_root: Expression | None = None
    """What must be true of the root of the run's trace."""
    where_any: Expression | None = None
    """What must be true of at least one run of the run's trace."""
    where_thread: Expression | None = None
    """What must be true of the run's thread, as the turns of the query's projects and time tell it:
    an expression of `parse_thread_filter`."""
    oldest_first: bool = False
    with_doomed: bool = False
    """With those whose deletion is asked for: for the one who deletes them."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs in order; `next_cursor` leads to those after them."""

    runs: Sequence[RunDetail]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ProjectStats:
    """What the list of projects shows of one."""

    run_count: int = 0
    trace_count: int = 0
    last_run_start_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunLocation:
    project_id: UUID
    place: TreePosition


@dataclass(frozen=True, slots=True)
class TraceTimes:
    first_start_time: datetime
    last_start_time: datetime
    first_received_at: datetime


@dataclass(frozen=True, slots=True)
class DeletedRun:
    """A run that was there."""

    id: UUID
    project_id: UUID
    trace_id: UUID
    partition_time: datetime
    is_root: bool
    files: Sequence[str]
    """In object storage: attachments, and payloads that are too large for a row."""

    @property
    def key(self) -> tuple[UUID, UUID, datetime]:
        return self.id, self.project_id, self.partition_time


@dataclass(frozen=True, slots=True)
class RetentionCutoffs:
    """Of a project: what came before then has lived long enough. `None` never has."""

    project_id: UUID
    long: datetime | None
    short: datetime | None
    short_since: datetime | None
    """When the project began to be short-lived, if it is."""

    @property
    def latest(self) -> datetime | None:
        """Nothing that came later is due."""
        cutoffs = [self.long, None if self.short_since is None else self.short]
        return max((cutoff for cutoff in cutoffs if cutoff is not None), default=None)
