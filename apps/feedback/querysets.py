"""Chainable queries on feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.feedback.models import (  # noqa: F401
        Feedback,
        FeedbackConfig,
        FeedbackFormula,
        FeedbackToken,
    )


class FeedbackQuerySet(models.QuerySet["Feedback"]):
    pass


class FeedbackConfigQuerySet(models.QuerySet["FeedbackConfig"]):
    pass


class FeedbackFormulaQuerySet(models.QuerySet["FeedbackFormula"]):
    pass


class FeedbackTokenQuerySet(models.QuerySet["FeedbackToken"]):
    pass
