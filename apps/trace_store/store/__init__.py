"""Stored runs, behind one interface: `runs` is the store of this installation."""

from apps.trace_store.store.postgres import PostgresRunStore
from apps.trace_store.store.protocol import ALL_PAYLOADS, NO_PAYLOADS, RunStore
from apps.trace_store.store.types import (
    Attachment,
    Page,
    Payload,
    ProjectStats,
    RunDetail,
    RunQuery,
    RunRow,
    RunType,
    Status,
    Usage,
)

runs: RunStore = PostgresRunStore()

__all__ = [
    "ALL_PAYLOADS",
    "NO_PAYLOADS",
    "Attachment",
    "Page",
    "Payload",
    "ProjectStats",
    "RunDetail",
    "RunQuery",
    "RunRow",
    "RunStore",
    "RunType",
    "Status",
    "Usage",
    "runs",
]
