"""Chainable queries on the rows of the playground."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from apps.playground.models import Draft, ModelCall, PlaygroundShare, SavedSettings  # noqa: F401


class DraftQuerySet(models.QuerySet["Draft"]):
    pass


class PlaygroundShareQuerySet(models.QuerySet["PlaygroundShare"]):
    pass


class SavedSettingsQuerySet(models.QuerySet["SavedSettings"]):
    pass


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    def due(self, now: datetime) -> ModelCallQuerySet:
        """Calls that a worker may start: waiting ones, and those whose lease has ended."""
        waiting = Q(status="pending", due_at__lte=now)
        return self.filter(waiting | Q(status="running", due_at__lte=now))
