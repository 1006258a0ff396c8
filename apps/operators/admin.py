"""Organizations with their use and health, where the apps below do not know of each other."""

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
from apps.web_ui.formatting import compact, count, duration, size

_DAYS = 30
# Tokens and secrets of sign-in, which their own apps would show in full.
_NOBODY_READS = (
    ("socialaccount", "SocialToken"),
    ("socialaccount", "SocialApp"),
    ("mfa", "Authenticator"),
    ("usersessions", "UserSession"),  # its key is as good as the session
)
for _place in _NOBODY_READS:
    if apps.is_installed(f"allauth.{_place[0]}"):
        try:
            admin.site.unregister(apps.get_model(*_place))
        except NotRegistered:
            continue
admin.site.unregister(Organization)


def _used(measure: str) -> Coalesce:
    since = datetime.now(UTC).date() - timedelta(days=_DAYS)
    days = UsageDay.objects.across_workspaces(reason="operators see all")
    of_it = days.filter(workspace__organization=OuterRef("pk"), day__gte=since).order_by()
    total = of_it.values("workspace__organization").annotate(total=Sum(measure)).values("total")
    return Coalesce(Subquery(total, output_field=BigIntegerField()), 0)


def _counted(rows: QuerySet[Any], path: str) -> Coalesce:
    found = rows.filter(**{path: OuterRef("pk")}).order_by().values(path)
    return Coalesce(
        Subquery(found.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0
    )


@admin.register(Organization)
class OrganizationWithUse(OrganizationAdmin):
    """What it used in the last thirty days, and whether its deployments serve."""

    list_display: tuple[str, ...] = (
        "name",
        "people",
        "places",
        "runs",
        "received",
        "agent_runs",
        "at_work",
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
                people_n=_counted(Membership.objects.all(), "organization"),
                places_n=_counted(Workspace.objects.present(), "organization"),
                runs_n=_used("runs"),
                bytes_n=_used("bytes"),
                agent_runs_n=_used("agent_runs"),
                agent_seconds_n=_used("agent_seconds"),
                deployments_n=_counted(present, path),
                serving_n=_counted(present.filter(~Q(active_revision=None)), path),
            )
        )

    @admin.display(ordering="people_n")
    def people(self, row: Any) -> str:
        return count(row.people_n)

    @admin.display(description="workspaces", ordering="places_n")
    def places(self, row: Any) -> str:
        return count(row.places_n)

    @admin.display(description="runs, 30 days", ordering="runs_n")
    def runs(self, row: Any) -> str:
        return compact(row.runs_n)

    @admin.display(description="received", ordering="bytes_n")
    def received(self, row: Any) -> str:
        return size(row.bytes_n)

    @admin.display(description="agent runs", ordering="agent_runs_n")
    def agent_runs(self, row: Any) -> str:
        return compact(row.agent_runs_n)

    @admin.display(description="agents at work", ordering="agent_seconds_n")
    def at_work(self, row: Any) -> str:
        return duration(row.agent_seconds_n)

    @admin.display(description="deployments that serve", ordering="deployments_n")
    def health(self, row: Any) -> str:
        return f"{row.serving_n} of {row.deployments_n}" if row.deployments_n else "none"
