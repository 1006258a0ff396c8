"""What the agents of a workspace store: threads with all that belongs to them, and store items."""

from __future__ import annotations

from apps.usage import storage
from apps.usage.models import StorageKind
from apps.usage.storage import MeasuredTable

_OF_THREAD = "JOIN agent_server_thread t ON t.id = r.thread_id"
_THREADS = (
    MeasuredTable(
        "agent_server_thread", ["metadata", "config", '"values"', "interrupts", "error", "state"]
    ),
    MeasuredTable("agent_server_agentrun", ["metadata", "kwargs", "error"]),
    MeasuredTable(
        "agent_server_checkpoint",
        ["namespace", "blob", "blob_versions", "metadata"],
        workspace="t.workspace_id",
        join=_OF_THREAD,
    ),
    MeasuredTable(
        "agent_server_checkpointblob",
        ["namespace", "channel", "version", "blob"],
        workspace="t.workspace_id",
        join=_OF_THREAD,
    ),
    MeasuredTable(
        "agent_server_checkpointwrite",
        ["namespace", "task_id", "task_path", "channel", "blob", "replaced"],
        workspace="t.workspace_id",
        join=_OF_THREAD,
    ),
    MeasuredTable(
        "agent_server_streamedevents",
        ["batches"],
        workspace="t.workspace_id",
        join="JOIN agent_server_agentrun t ON t.id = r.run_id",
    ),
    MeasuredTable("agent_server_a2atask", ["history", "output", "interrupts", "error"]),
)
_STORE = (
    MeasuredTable("agent_server_storeitem", ["namespace", "key", "value"]),
    MeasuredTable(
        "agent_server_storevector",
        ["path", "embedding"],
        workspace="i.workspace_id",
        join="JOIN agent_server_storeitem i ON i.id = r.item_id",
    ),
)


def register() -> None:
    for table in _THREADS:
        storage.register_table(StorageKind.THREADS, table)
    for table in _STORE:
        storage.register_table(StorageKind.STORE, table)
