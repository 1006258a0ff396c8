from __future__ import annotations

from django.db import models


class Switch(models.Model):
    """What an operator said about a feature; without a row it is as the settings have it."""

    name = models.CharField(max_length=50, primary_key=True)
    on = models.BooleanField(default=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "switches"

    def __str__(self) -> str:
        return f"{self.name} {'on' if self.on else 'off'}"
