"""The JSON responses of an Agent Server, as models for its OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from apps.agent_server.statuses import MultitaskStrategy, RunStatus, ThreadStatus

JSONObject = dict[str, Any]


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class Failure(Shape):
    """The shape of every error; `code` is stable and listed in the platform's documentation."""

    detail: str
    code: str = ""
    errors: list[Any] = []


class Alive(Shape):
    ok: Literal[True]


class Flags(Shape):
    assistants: bool
    crons: bool
    langsmith: bool


class Info(Shape):
    version: str
    langgraph_py_version: str | None
    python_version: str | None
    flags: Flags
    host: JSONObject


class QueueFigures(Shape):
    n_pending: int
    n_running: int


class WorkerFigures(Shape):
    max: int
    active: int
    available: int


class ApiFigures(Shape):
    requests: int
    by_status: dict[str, int]


class MetricsFigures(Shape):
    queue: QueueFigures
    workers: WorkerFigures
    api: ApiFigures


class AssistantBase(Shape):
    assistant_id: UUID
    graph_id: str
    name: str
    description: str | None
    config: JSONObject
    context: JSONObject
    metadata: JSONObject
    version: int
    created_at: datetime


class Assistant(AssistantBase):
    updated_at: datetime


class AssistantVersion(AssistantBase):
    """One version of an assistant."""


class Node(Shape):
    id: str
    type: str = ""
    data: Any = None
    metadata: JSONObject = {}


class Edge(Shape):
    source: str
    target: str
    conditional: bool = False
    data: Any = None


class Drawing(Shape):
    nodes: list[Node]
    edges: list[Edge]


class Schemas(Shape):
    input_schema: JSONObject | None = None
    output_schema: JSONObject | None = None
    state_schema: JSONObject | None = None
    config_schema: JSONObject | None = None
    context_schema: JSONObject | None = None


class GraphSchemas(Schemas):
    graph_id: str


class Thread(Shape):
    thread_id: UUID
    created_at: datetime
    updated_at: datetime
    state_updated_at: datetime
    metadata: JSONObject
    config: JSONObject
    status: ThreadStatus
    values: Any = Field(None, description="null before the first checkpoint")
    interrupts: dict[str, list[JSONObject]] = Field({}, description="by task; absent at first")
    error: JSONObject | None = None


class Pruned(Shape):
    pruned_count: int


class Reference(Shape):
    thread_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None
    checkpoint_map: JSONObject | None = None


class Task(Shape):
    id: str
    name: str
    path: list[Any] = []
    error: str | None = None
    interrupts: list[JSONObject] = []
    checkpoint: Reference | None = None
    state: JSONObject | None = None
    result: Any = None


class State(Shape):
    values: Any
    next: list[str]
    tasks: list[Task]
    metadata: JSONObject | None
    created_at: str | None
    checkpoint: Reference | None
    parent_checkpoint: Reference | None
    interrupts: list[JSONObject]


class StateUpdated(Shape):
    checkpoint: Reference


class Run(Shape):  # type: ignore[no-redef]  # a defect of pydantic's plugin with `kwargs`
    run_id: UUID
    thread_id: UUID
    assistant_id: UUID
    status: RunStatus
    metadata: JSONObject
    kwargs: JSONObject
    multitask_strategy: MultitaskStrategy
    created_at: datetime
    updated_at: datetime


class CommandEnvelope(Shape):
    id: int
    method: str
    params: JSONObject = {}


class CommandAnswer(Shape):
    id: int | None = None
    type: str


class Cron(Shape):
    cron_id: UUID
    assistant_id: UUID
    thread_id: UUID | None
    user_id: str | None
    schedule: str
    timezone: str | None
    end_time: datetime | None
    enabled: bool
    on_run_completed: Literal["delete", "keep"] | None
    payload: JSONObject
    metadata: JSONObject
    next_run_date: datetime
    created_at: datetime
    updated_at: datetime


class Delivery(Shape):
    """A webhook with every attempt to deliver it."""

    webhook_id: str
    run_id: UUID
    url: str
    status: str
    attempts: int
    log: list[Any]


class Item(Shape):
    namespace: list[str]
    key: str
    value: JSONObject
    created_at: datetime
    updated_at: datetime


class FoundItem(Item):
    score: float | None = None


class FoundItems(Shape):
    items: list[FoundItem]


class Namespaces(Shape):
    namespaces: list[list[str]]


# Searches with `select` return only the selected fields.


class SomeOfAssistant(Shape):
    """An `Assistant`, or the fields of it that were selected."""


class SomeOfThread(Shape):
    """A `Thread`, or the fields of it that were selected."""


class SomeOfRun(Shape):
    """A `Run`, or the fields of it that were selected."""


class SomeOfCron(Shape):
    """A `Cron`, or the fields of it that were selected."""
