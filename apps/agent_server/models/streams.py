"""What resumable runs said, for readers who come back when Redis has lost it."""

from __future__ import annotations

from django.db import models


class StreamedEvents(models.Model):
    """A stretch of a run's stream. Reached through its run only, and swept soon after its end."""

    pk = models.CompositePrimaryKey("run_id", "position")
    run_id = models.UUIDField()
    """No foreign key: an insert must not lock the run, and the sweeper takes what is left over."""
    position = models.BigIntegerField()
    """That of the last event in it."""
    batches = models.BinaryField()
    """As they went to Redis, one after the other in a msgpack array."""

    def __str__(self) -> str:
        return f"{self.run_id}@{self.position}"
