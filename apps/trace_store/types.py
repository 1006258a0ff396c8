"""Arguments and results of the run store: plain values without a database connection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from apps.core.json import Fragment, LazyFragment
from apps.trace_store.dotted_order import TreePosition
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.media import is_media_name, restore_media
from apps.trace_store.run_status import Status, classify_error

MAX_OPEN_TIME = timedelta(days=1)
"""The time after its start in which the end of a run is expected."""

LIBRARY_GRAPH_NAME = "LangGraph"
"""The name that LangGraph gives a graph without one."""
_GRAPH_ID = b'"graph_id"'

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


class Payload(StrEnum):
    """The large fields of a run, stored compressed and read only on request."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    EXTRA = "extra"
    EVENTS = "events"
    ERROR = "error"
    SERIALIZED = "serialized"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and cost in US dollars; `None` means unknown."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cost: Decimal | None = None
    completion_cost: Decimal | None = None
    total_cost: Decimal | None = None
    details: Mapping[str, Mapping[str, Any]] | None = None
    """`prompt_token_details`, `completion_token_details`, `prompt_cost_details`,
    `completion_cost_details`, as sent by the client."""

    @property
    def is_known(self) -> bool:
        return self.total_tokens is not None or self.total_cost is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    name: str
    path: str
    """The key in object storage."""
    mime_type: str
    size: int

    @property
    def is_medium(self) -> bool:
        """Whether it was in the JSON of the run, where reads show it."""
        return is_media_name(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run without its payloads."""

    workspace_id: UUID
    project_id: UUID
    id: UUID
    trace_id: UUID
    parent_run_id: UUID | None
    dotted_order: str
    partition_time: datetime
    """The time in the last segment of the dotted order; partitions and lists are ordered by it."""
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
    """A JSON object, as it was sent."""
    thread_key: str | None
    model: str | None
    reference_example_id: UUID | None
    attachments: Sequence[Attachment]
    usage: Usage
    """The usage of a model call; for other runs the total of their descendants."""
    price_model_id: UUID | None = None
    """The price map entry that the cost was computed with."""

    @property
    def metadata(self) -> dict[str, Any]:
        # The standard library's parser keeps numbers of any length.
        metadata: dict[str, Any] = json.loads(self.metadata_json)
        return metadata

    @property
    def shown_name(self) -> str:
        """The name for people: a graph that kept the library's name has that of its graph id.

        Ingest stores such a graph by its graph id, so this is for traces stored earlier and for
        updates that repeat the name alone; queries and facets go by the stored name.
        """
        if (
            self.name != LIBRARY_GRAPH_NAME
            or not self.is_root
            or self.metadata_json.find(_GRAPH_ID) < 0
        ):
            return self.name
        graph_id = self.metadata.get("graph_id")
        return graph_id if isinstance(graph_id, str) and graph_id else self.name

    @property
    def sent_files(self) -> list[tuple[int, Attachment]]:
        """The attachments that a client sent, with their numbers among all."""
        return [item for item in enumerate(self.attachments) if not item[1].is_medium]

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
            return classify_error(self.error_preview)
        return Status.PENDING if self.end_time is None else Status.SUCCESS

    @property
    def has_no_end(self) -> bool:
        """Whether no end is expected any more; the process of the run probably ended without one.

        The status stays `pending`, because it does not depend on the time of a read.
        """
        is_pending = self.status is Status.PENDING
        return is_pending and datetime.now(UTC) - self.start_time > MAX_OPEN_TIME

    @property
    def shown_status(self) -> str:
        """The status for people: `no_end` for runs that are pending for long."""
        return "no_end" if self.has_no_end else str(self.status)

    @property
    def has_failed(self) -> bool:
        return self.status is Status.ERROR

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
    """A run with the requested payloads."""

    row: RunRow
    payloads: Mapping[Payload, Fragment | LazyFragment]
    """The stored JSON, in which references stand for large media; see `apps.trace_store.media`.

    Of many runs with large payloads, only the first are loaded.
    """

    def stored(self, payload: Payload) -> Fragment | None:
        """The stored JSON; None if the run has none."""
        text = self.payloads.get(payload)
        return Fragment(text.load()) if isinstance(text, LazyFragment) else text

    def json(self, payload: Payload) -> Fragment | None:
        """The JSON that was sent; None if the run has none."""
        text = self.stored(payload)
        if text is None or not self.row.attachments:
            return text
        return Fragment(restore_media(text, self.row.attachments))

    def embedded(self, payload: Payload) -> Fragment | LazyFragment | None:
        """The JSON that was sent, to be encoded as a part of a response; see `iterate_encoded`."""
        text = self.payloads.get(payload)
        if isinstance(text, LazyFragment) and self.row.attachments:
            return RestoredFragment(text, self.row.attachments)
        return text if isinstance(text, LazyFragment) else self.json(payload)

    def value(self, payload: Payload) -> Any:
        """The parsed payload; None if the run has none."""
        text = self.json(payload)
        return None if text is None else json.loads(text)


@dataclass(frozen=True, slots=True)
class RestoredFragment(LazyFragment):
    """A payload that is loaded when it is encoded, with its media."""

    text: LazyFragment
    attachments: Sequence[Attachment]

    def load(self) -> bytes:
        return restore_media(self.text.load(), self.attachments)


class SortField(StrEnum):
    """The fields by which a page of runs can be sorted, other than the start."""

    LATENCY = "latency"
    TOKENS = "tokens"
    COST = "cost"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RunSort:
    """An order of runs by a value; runs without the value come last, newest first."""

    field: SortField
    descending: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A selection of runs. All given conditions must hold; `None` means no condition."""

    project_ids: Sequence[UUID] | None = None
    run_ids: Sequence[UUID] | None = None
    trace_id: UUID | None = None
    parent_run_id: UUID | None = None
    reference_example_ids: Sequence[UUID] | None = None
    run_type: str | None = None
    is_root: bool | None = None
    has_error: bool | None = None
    started_from: datetime | None = None
    """Inclusive lower bound of the start time."""
    started_until: datetime | None = None
    """Inclusive upper bound of the start time."""
    where: Expression | None = None
    """Filter on the run itself."""
    where_root: Expression | None = None
    """Filter on the root of the trace."""
    where_any: Expression | None = None
    """Filter that at least one run of the trace matches."""
    where_thread: Expression | None = None
    """Filter on the run's thread, over its turns in the projects and time range of the query:
    an expression of `parse_thread_filter`."""
    oldest_first: bool = False
    sort: RunSort | None = None
    """Another order than by start; `oldest_first` then has no effect."""
    include_deleted: bool = False
    """Include runs with a pending deletion, for the task that deletes them."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs in order; `next_cursor` starts the next page."""

    runs: Sequence[RunDetail]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ExampleRuns:
    """An example with root runs in experiments, and the range of their partition times."""

    example_id: UUID
    first_time: datetime
    last_time: datetime


class ExperimentRun(NamedTuple):
    """A root run of an experiment, and the example that it refers to."""

    project_id: UUID
    example_id: UUID
    run_id: UUID


@dataclass(frozen=True, slots=True)
class ProjectStats:
    """Counts of a project."""

    run_count: int = 0
    trace_count: int = 0
    last_run_start_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunLocation:
    project_id: UUID
    position: TreePosition


@dataclass(frozen=True, slots=True)
class TraceTimes:
    first_start_time: datetime
    last_start_time: datetime
    first_received_at: datetime


@dataclass(frozen=True, slots=True)
class SubtreeMove:
    """Moves a run and its descendants by replacing the prefix of their dotted orders."""

    old_prefix: str
    new_prefix: str
    run_id: UUID | None
    """The run that gets the new parent; `None` moves all runs below a new root."""
    parent_run_id: UUID | None


@dataclass(frozen=True, slots=True)
class PlaceholderRoot:
    """A temporary run that replaces a root until that root is received."""

    run_id: UUID
    project_id: UUID
    partition_time: datetime


class StartCriterion(NamedTuple):
    """Project, start time and name of a run to find, and the caller's key for it."""

    key: UUID
    project_id: UUID
    start_time: datetime
    name: str


class StartMatch(NamedTuple):
    """A run that matches the criterion with this key."""

    key: UUID
    run_id: UUID
    dotted_order: str
    partition_time: datetime


@dataclass(frozen=True, slots=True)
class RetentionCutoffs:
    """Runs of a project received before these times have expired; `None` means never."""

    project_id: UUID
    long: datetime | None
    short: datetime | None
    short_since: datetime | None
    """When the project changed to short retention, if it did."""

    @property
    def latest(self) -> datetime | None:
        """Runs received later have not expired. None if no run has."""
        cutoffs = [self.long, None if self.short_since is None else self.short]
        return max((cutoff for cutoff in cutoffs if cutoff is not None), default=None)
