"""Errors of alerts."""

from __future__ import annotations

from apps.core import errors


class InvalidAlert(errors.Invalid):
    code, detail = "invalid_alert", "The alert rule is not valid."


class TooManyAlerts(errors.Invalid):
    code, detail = "too_many_alerts", "The workspace has the maximum number of alert rules."
