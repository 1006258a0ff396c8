"""Stored runs behind one interface: `run_store` is the store of this installation.

Other apps import from this package, from `filters`, `pricing`, `aggregation`, `metrics` and
`dotted_order`, never from `postgres`. Another store implements `RunStore`.
"""

from typing import cast

from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from apps.trace_store.protocol import ALL_PAYLOADS, NO_PAYLOADS, RunStore
from apps.trace_store.run_status import Status
from apps.trace_store.types import (
    LIBRARY_GRAPH_NAME,
    Attachment,
    ChangedRun,
    ExampleRuns,
    ExperimentRun,
    Payload,
    PlaceholderRoot,
    ProjectStats,
    RunDetail,
    RunKey,
    RunPage,
    RunQuery,
    RunRow,
    RunSort,
    RunType,
    SortField,
    StartCriterion,
    SubtreeMove,
    Usage,
)


def _load_run_store() -> RunStore:
    store: RunStore = import_string("apps.trace_store.postgres.store.PostgresRunStore")()
    return store


# Lazy, because Django imports this package before models are ready.
run_store = cast("RunStore", SimpleLazyObject(_load_run_store))

__all__ = [
    "ALL_PAYLOADS",
    "LIBRARY_GRAPH_NAME",
    "NO_PAYLOADS",
    "Attachment",
    "ChangedRun",
    "ExampleRuns",
    "ExperimentRun",
    "Payload",
    "PlaceholderRoot",
    "ProjectStats",
    "RunDetail",
    "RunKey",
    "RunPage",
    "RunQuery",
    "RunRow",
    "RunSort",
    "RunStore",
    "RunType",
    "SortField",
    "StartCriterion",
    "Status",
    "SubtreeMove",
    "Usage",
    "run_store",
]
