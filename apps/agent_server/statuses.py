"""States of agent runs and threads; the words are the wire's."""

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
    """What a new run does to those that the thread still has open."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class TTLStrategy(TextChoices):
    """What becomes of a thread that has been quiet for its time to live."""

    DELETE = "delete"
    KEEP_LATEST = "keep_latest"


class DeliveryStatus(TextChoices):
    """Of a webhook."""

    DUE = "due"
    SENDING = "sending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
