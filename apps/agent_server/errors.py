"""Errors of the Agent Server API; clients depend on some of the texts."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.core import errors


class NoSuchAgent(errors.NotFound):
    code, detail = "agent_not_found", "No agent is deployed under this address."


class AgentNotReady(errors.Unavailable):
    code, detail = "agent_not_ready", "No revision of this agent has been deployed yet."


class InvalidId(errors.Invalid):
    code = "invalid_id"

    def __init__(self, noun: str) -> None:
        super().__init__(f"Invalid {noun} ID: must be a UUID")


class InvalidIdAtRunCreation(errors.BadRequest):
    code = "invalid_id"

    def __init__(self, noun: str) -> None:
        super().__init__(f"Invalid {noun} ID: must be a UUID")


class ThreadNotFound(errors.NotFound):
    code = "thread_not_found"

    def __init__(self, thread_id: UUID) -> None:
        super().__init__(f"Thread with ID {thread_id} not found")


class ThreadExists(errors.Conflict):
    code = "thread_exists"

    def __init__(self, thread_id: UUID) -> None:
        super().__init__(f"Thread with ID {thread_id} already exists")


class ThreadBusy(errors.Conflict):
    code = "thread_busy"
    detail = (
        "Thread is already running a task. Wait for it to finish or choose a different multitask"
        " strategy."
    )


class RunNotFound(errors.NotFound):
    code, detail = "run_not_found", "Run not found"


class NothingToCancel(errors.NotFound):
    code, detail = "nothing_to_cancel", "No matching runs to cancel: it has ended or is not here."


class NoRunsToCancel(errors.NotFound):
    code, detail = "nothing_to_cancel", "No runs found to cancel."


class AssistantNotFound(errors.NotFound):
    code, detail = "assistant_not_found", "Not Found"


class AssistantExists(errors.Conflict):
    code = "assistant_exists"

    def __init__(self, assistant_id: UUID) -> None:
        super().__init__(f"Assistant {assistant_id} already exists")


class SystemAssistant(errors.Conflict):
    """The system assistant of a deployed graph cannot be deleted or get another graph."""

    code = "system_assistant"

    def __init__(self, graph_id: str) -> None:
        super().__init__(
            f"This is the own assistant of the deployed graph '{graph_id}': it can be changed and"
            " set back to an earlier version, but it keeps its graph and cannot be deleted."
        )


class GraphNotFound(errors.NotFound):
    code = "graph_not_found"

    def __init__(self, graph_id: str, known: Collection[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"Graph '{graph_id}' not found. The deployed graphs are: {names}")


class CronNotFound(errors.NotFound):
    code, detail = "cron_not_found", "Cron not found"


class ThreadOrAssistantNotFound(errors.NotFound):
    code, detail = "thread_or_assistant_not_found", "Thread or assistant not found."


class UnknownGraph(errors.Invalid):
    code = "unknown_graph"

    def __init__(self, name: str, known: Collection[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"Invalid assistant: '{name}'. Must be a UUID or the name of a graph: {names}"
        )


class GraphGone(errors.Conflict):
    code = "graph_gone"

    def __init__(self, graph_id: str) -> None:
        super().__init__(f"The deployed revision has no graph '{graph_id}'.")


class NotOffered(errors.Invalid):
    """A valid field or value that this server does not support."""

    code = "not_offered"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not offered yet by this server.")


class ConfigAndContext(errors.BadRequest):
    code = "config_and_context"
    detail = "Cannot specify both configurable and context. Prefer setting context alone."


class ThreadHasNoGraph(errors.BadRequest):
    code = "no_graph_known"
    detail = "The thread knows no graph: run one on it, or give it metadata.graph_id."


class EditRefused(errors.BadRequest):
    """The graph rejected the edit; the text is the graph's."""

    code = "edit_refused"
