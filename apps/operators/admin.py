"""The organization list with usage and deployment status, which combines several apps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.db.models import (
    BigIntegerField,
    Count,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from apps.deployments.models import Deployment
from apps.organizations.admin import OrganizationAdmin
from apps.organizations.models import Membership, Organization, Workspace
from apps.usage.models import UsageDay
from apps.web_ui.formatting import (
    format_compact,
    format_count,
    format_duration,
    format_size,
)

_DAYS = 30
# Models with tokens and secrets of sign-in, which the default admin would show in full.
_HIDDEN_MODELS = (
    ("socialaccount", "SocialToken"),
    ("socialaccount", "SocialApp"),
    ("mfa", "Authenticator"),
    ("usersessions", "UserSession"),  # its key grants access to the session
)
for _model in _HIDDEN_MODELS:
    if apps.is_installed(f"allauth.{_model[0]}"):
        try:
            admin.site.unregister(apps.get_model(*_model))
        except NotRegistered:
            continue
admin.site.unregister(Organization)


def _sum_usage(measure: str) -> Coalesce:
    since = datetime.now(UTC).date() - timedelta(days=_DAYS)
    days = UsageDay.objects.across_workspaces(reason="operators see all")
    matching = days.filter(workspace__organization=OuterRef("pk"), day__gte=since).order_by()
    total = matching.values("workspace__organization").annotate(total=Sum(measure)).values("total")
    return Coalesce(Subquery(total, output_field=BigIntegerField()), 0)


def _count_by(rows: QuerySet[Any], path: str) -> Coalesce:
    matching = rows.filter(**{path: OuterRef("pk")}).order_by().values(path)
    return Coalesce(
        Subquery(matching.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0
    )


@admin.register(Organization)
class OrganizationWithUsageAdmin(OrganizationAdmin):
    """Usage of the last 30 days and the state of deployments."""

    list_display: tuple[str, ...] = (
        "name",
        "members",
        "workspaces",
        "runs",
        "received",
        "agent_runs",
        "agent_time",
        "health",
        "created_at",
    )
    sortable_by = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organization]:
        deployments = Deployment.objects.across_workspaces(reason="operators see all")
        present = deployments.filter(deleted_at=None)
        path = "workspace__organization"
        return (
            super()
            .get_queryset(request)
            .annotate(
                members_n=_count_by(Membership.objects.all(), "organization"),
                workspaces_n=_count_by(Workspace.objects.present(), "organization"),
                runs_n=_sum_usage("runs"),
                bytes_n=_sum_usage("bytes"),
                agent_runs_n=_sum_usage("agent_runs"),
                agent_seconds_n=_sum_usage("agent_seconds"),
                deployments_n=_count_by(present, path),
                serving_n=_count_by(present.filter(~Q(active_revision=None)), path),
            )
        )

    @admin.display(ordering="members_n")
    def members(self, row: Any) -> str:
        return format_count(row.members_n)

    @admin.display(description="workspaces", ordering="workspaces_n")
    def workspaces(self, row: Any) -> str:
        return format_count(row.workspaces_n)

    @admin.display(description="runs, 30 days", ordering="runs_n")
    def runs(self, row: Any) -> str:
        return format_compact(row.runs_n)

    @admin.display(description="received", ordering="bytes_n")
    def received(self, row: Any) -> str:
        return format_size(row.bytes_n)

    @admin.display(description="agent runs", ordering="agent_runs_n")
    def agent_runs(self, row: Any) -> str:
        return format_compact(row.agent_runs_n)

    @admin.display(description="agent time", ordering="agent_seconds_n")
    def agent_time(self, row: Any) -> str:
        return format_duration(row.agent_seconds_n)

    @admin.display(description="serving deployments", ordering="deployments_n")
    def health(self, row: Any) -> str:
        return f"{row.serving_n} of {row.deployments_n}" if row.deployments_n else "none"
