"""Limit factors that operators set for organizations."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from apps.core.ids import uuid7
from apps.organizations.models import Organization

MIN_FACTOR, MAX_FACTOR = 0.001, 1_000_000.0


class LimitFactor(models.Model):
    """Multiplies an organization's limits of one category, or of all.

    A category's factor takes precedence over the one for all. Rows by address have no organization
    and no factor.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="limit_factors")
    category = models.CharField(
        max_length=40,
        blank=True,
        help_text="Empty: every row without its own factor.",
    )
    factor = models.FloatField(
        validators=[MinValueValidator(MIN_FACTOR), MaxValueValidator(MAX_FACTOR)]
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "category"], name="limit_factor_once"),
            models.CheckConstraint(
                condition=Q(factor__gte=MIN_FACTOR) & Q(factor__lte=MAX_FACTOR),
                name="limit_factor_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.organization}: {self.category or 'all rows'} times {self.factor:g}"
