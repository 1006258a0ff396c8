"""States of experiment jobs and of their steps; the values are on the wire."""

from __future__ import annotations

from django.db.models import TextChoices


class JobStatus(TextChoices):
    RUNNING = "running"
    CANCELLING = "cancelling"
    """No run is started any more; the job ends with its last open run."""
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


OPEN = frozenset({JobStatus.RUNNING, JobStatus.CANCELLING})


class StepStatus(TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Interrupted by the cancellation of the job."""
