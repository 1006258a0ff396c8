"""States of agent runs, threads and webhook deliveries; the values are on the wire."""

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
