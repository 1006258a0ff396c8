"""Chainable queries on comparisons of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.experiments.models import ComparativeExperiment  # noqa: F401


class ComparativeExperimentQuerySet(models.QuerySet["ComparativeExperiment"]):
    pass
