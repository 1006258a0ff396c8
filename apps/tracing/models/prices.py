"""Model prices."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.querysets import ModelPriceQuerySet


class ModelPrice(WorkspaceOwned):
    """A workspace's entry of the price map; it takes precedence over built-in ones."""

    name = models.CharField(max_length=500)
    match_pattern = models.CharField(max_length=1000)
    """An RE2 pattern, searched in the names under `match_path`."""
    match_path = models.JSONField(default=list)
    provider = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001  (null is any)
    start_time = models.DateTimeField(null=True, blank=True)
    """Applies to runs that started at or after this time; null for all."""
    prompt_cost = models.DecimalField(max_digits=40, decimal_places=24)
    completion_cost = models.DecimalField(max_digits=40, decimal_places=24)
    """US dollars per token."""
    prompt_cost_details = models.JSONField(default=dict, blank=True)
    completion_cost_details = models.JSONField(default=dict, blank=True)
    """Prices by kind of token, decimals as strings."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(ModelPriceQuerySet)
    unscoped = ModelPriceQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "-id"], name="model_price_newest")]

    def __str__(self) -> str:
        return self.name
