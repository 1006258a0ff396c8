"""Chainable queries on feedback."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

if TYPE_CHECKING:
    from apps.feedback.models import (  # noqa: F401
        Feedback,
        FeedbackConfig,
        FeedbackFormula,
        FeedbackToken,
    )


class FeedbackQuerySet(models.QuerySet["Feedback"]):
    def on_runs(self, run_ids: Collection[UUID]) -> FeedbackQuerySet:
        return self.filter(run_id__in=run_ids)


class FeedbackConfigQuerySet(models.QuerySet["FeedbackConfig"]):
    pass


class FeedbackFormulaQuerySet(models.QuerySet["FeedbackFormula"]):
    pass


class FeedbackTokenQuerySet(models.QuerySet["FeedbackToken"]):
    pass
