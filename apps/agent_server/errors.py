"""Errors of the Agent Server API; clients depend on some of the texts."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.core import errors


class NoSuchAgent(errors.NotFound):
    code, detail = "agent_not_found", "No agent is deployed under this address."


class AgentNotReady(errors.Unavailable):
    code, detail = "agent_not_ready", "No revision of this agent has been deployed yet."


class AgentStopped(errors.Unavailable):
    code, detail = "agent_stopped", "This agent is stopped. A member of its workspace can start it."


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


class QueueFull(errors.RateLimited):
    """The organization or the deployment has the maximum of pending runs."""

    code = "queue_full"

    def __init__(self, owner: str, limit: int) -> None:
        super().__init__(
            f"This {owner} has {limit:,} pending runs, the maximum. Repeat the request when some"
            " have started or were cancelled."
        )
        self.headers = {"Retry-After": "10"}


class AgentRunNotFound(errors.NotFound):
    code, detail = "run_not_found", "Run not found"


class NothingToCancel(errors.NotFound):
    code, detail = (
        "nothing_to_cancel",
        "No matching runs to cancel: the run has ended or does not exist.",
    )


class NoRunsToCancel(errors.NotFound):
    code, detail = "nothing_to_cancel", "No runs found to cancel."


class AssistantNotFound(errors.NotFound):
    """`errors` names a missing reference of the body; clients depend on the text of `detail`."""

    code, detail = "assistant_not_found", "Not Found"

    def __init__(self, field: str = "assistant_id", reference: UUID | int | str = "") -> None:
        message = f"{reference} does not exist here".strip()
        super().__init__(errors=[{"field": field, "message": message}])


class AssistantExists(errors.Conflict):
    code = "assistant_exists"

    def __init__(self, assistant_id: UUID) -> None:
        super().__init__(f"Assistant {assistant_id} already exists")


class SystemAssistant(errors.Conflict):
    """The system assistant of a deployed graph cannot be deleted or get another graph."""

    code = "system_assistant"

    def __init__(self, graph_id: str) -> None:
        super().__init__(
            f"This is the system assistant of the graph '{graph_id}'. It can be changed and set"
            " back to an earlier version, but it cannot be deleted or get another graph."
        )


class GraphNotFound(errors.NotFound):
    code = "graph_not_found"

    def __init__(self, graph_id: str, graph_ids: Collection[str]) -> None:
        names = ", ".join(sorted(graph_ids)) or "none"
        super().__init__(f"Graph '{graph_id}' not found. The deployed graphs are: {names}")


class CronNotFound(errors.NotFound):
    code, detail = "cron_not_found", "Cron not found"


class ThreadOrAssistantNotFound(errors.NotFound):
    """`errors` names the missing reference; clients depend on the text of `detail`."""

    code, detail = "thread_or_assistant_not_found", "Thread or assistant not found."

    def __init__(self, field: str, reference: UUID | str) -> None:
        super().__init__(errors=[{"field": field, "message": f"{reference} does not exist here"}])


class UnknownCheckpoint(errors.NotFound):
    code = "checkpoint_not_found"

    def __init__(
        self, field: str, checkpoint_id: UUID | str, thread_id: UUID | None = None
    ) -> None:
        place = "a new thread" if thread_id is None else f"thread {thread_id}"
        message = f"{place} has no checkpoint {checkpoint_id}"
        super().__init__(f"{field}: {message}", [{"field": field, "message": message}])


class UnknownGraph(errors.Invalid):
    code = "unknown_graph"

    def __init__(self, name: str, graph_ids: Collection[str]) -> None:
        names = ", ".join(sorted(graph_ids)) or "none"
        super().__init__(
            f"Invalid assistant: '{name}'. Must be a UUID or the name of a graph: {names}"
        )


class GraphGone(errors.Conflict):
    code = "graph_gone"

    def __init__(self, graph_id: str) -> None:
        super().__init__(f"The deployed revision has no graph '{graph_id}'.")


class ConfigAndContext(errors.BadRequest):
    code = "config_and_context"
    detail = "Cannot specify both configurable and context. Prefer setting context alone."


class ThreadHasNoGraph(errors.BadRequest):
    code = "no_graph_known"
    detail = "The thread has no graph: create a run on it, or set metadata.graph_id."


class EditRefused(errors.BadRequest):
    """The graph rejected the edit; the text is the graph's."""

    code = "edit_refused"
