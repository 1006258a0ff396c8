"""States of agent runs, threads, A2A tasks and webhook deliveries; the values are on the wire."""

from __future__ import annotations

from django.db.models import TextChoices


class RunStatus(TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"


OPEN = frozenset({RunStatus.PENDING, RunStatus.RUNNING})


class ThreadStatus(TextChoices):
    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


class TaskState(TextChoices):
    """States of an A2A task; the names of A2A 0.3."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether the task never changes again."""
        return self in {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED}


class MultitaskStrategy(TextChoices):
    """The effect of a new run on the open runs of its thread."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class TTLStrategy(TextChoices):
    """The action on a thread that was inactive for its time to live."""

    DELETE = "delete"
    KEEP_LATEST = "keep_latest"
