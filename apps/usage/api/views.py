"""Usage limits and current usage."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import OrganizationAPIView, OrganizationRequest, WorkspaceAPIView, validate
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.usage import quotas, services
from apps.usage.models import MEASURES, LimitType, UsageLimit

MAX_LIMIT_VALUE = 2**62
MAX_USAGE_DAYS = 400


class UsageLimitBody(serializers.Serializer[UsageLimit]):
    limit_type = serializers.ChoiceField(choices=LimitType.choices)
    limit_value = serializers.IntegerField(min_value=0, max_value=MAX_LIMIT_VALUE)


class UsageLimitSerializer(serializers.ModelSerializer[UsageLimit]):
    tenant_id = serializers.UUIDField(source="workspace_id", allow_null=True)
    organization_id = serializers.UUIDField()

    class Meta:
        model = UsageLimit
        fields = (
            "id",
            "limit_type",
            "limit_value",
            "tenant_id",
            "organization_id",
            "created_at",
            "updated_at",
        )


class UsageLimitsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.WORKSPACE_MANAGE}

    @extend_schema(responses=UsageLimitSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the workspace's own limits."""
        limits = UsageLimit.objects.of_workspace(self.workspace_id).order_by("limit_type")
        return Response(UsageLimitSerializer(limits, many=True).data)

    @extend_schema(request=UsageLimitBody, responses=UsageLimitSerializer)
    def put(self, request: Request) -> Response:
        """Create or change a limit."""
        limit = services.set_limit(
            organization_id=self.request.auth.organization_id,
            workspace_id=self.workspace_id,
            **validate(UsageLimitBody, request.data),
        )
        return Response(UsageLimitSerializer(limit).data)


class UsageLimitView(WorkspaceAPIView):
    required_permission = Permission.WORKSPACE_MANAGE

    @extend_schema(responses={204: None})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """Delete one of the workspace's limits."""
        limits = UsageLimit.objects.of_workspace(self.workspace_id)
        services.delete_limit(limits=limits, limit_id=limit_id)
        return Response(status=204)


class OrganizationLimitsView(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.USAGE_READ,
        "*": OrganizationPermission.LIMITS_MANAGE,
    }

    @extend_schema(responses=UsageLimitSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the limits over all workspaces of the organization."""
        limits = UsageLimit.objects.of_organization(self.organization_id).order_by("limit_type")
        return Response(UsageLimitSerializer(limits, many=True).data)

    @extend_schema(request=UsageLimitBody, responses=UsageLimitSerializer)
    def put(self, request: Request) -> Response:
        limit = services.set_limit(
            organization_id=self.organization_id,
            workspace_id=None,
            **validate(UsageLimitBody, request.data),
        )
        return Response(UsageLimitSerializer(limit).data)


class OrganizationLimitView(OrganizationAPIView):
    required_permission = OrganizationPermission.LIMITS_MANAGE

    @extend_schema(responses={204: None})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        limits = UsageLimit.objects.of_organization(self.organization_id)
        services.delete_limit(limits=limits, limit_id=limit_id)
        return Response(status=204)


class CurrentUsageView(WorkspaceAPIView):
    required_permission = Permission.WORKSPACE_READ

    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        """Return whether runs are rejected, by which limit, and the use of each limit."""
        usages = quotas.list_limit_usages(self.workspace_id)
        exceeded = [use for use in usages if use.is_exceeded]
        reported = max(exceeded, key=lambda use: use.until, default=None)
        return Response(
            {
                "in_reject_set": reported is not None,
                "usage_limit_type": reported and reported.limit.limit_type,
                "tenant_limit": reported and reported.limit.limit_value,
                "limits": [_limit_usage_json(use) for use in usages],
            }
        )


class BillingUsageQuery(serializers.Serializer[Any]):
    """A span of days; there is one plan, so both values of `on_current_plan` mean the same."""

    starting_on = serializers.DateTimeField()
    ending_before = serializers.DateTimeField()
    on_current_plan = serializers.BooleanField(default=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        span = attrs["ending_before"] - attrs["starting_on"]
        if not timedelta() < span <= timedelta(days=MAX_USAGE_DAYS):
            text = f"Must be after starting_on, by {MAX_USAGE_DAYS} days at most."
            raise serializers.ValidationError({"ending_before": text})
        return attrs


class BillingUsageView(OrganizationAPIView):
    required_permission = OrganizationPermission.USAGE_READ

    @extend_schema(parameters=[BillingUsageQuery], responses=list[dict[str, Any]])
    def get(self, request: OrganizationRequest) -> Response:
        """Return each measure of usage with its value per workspace, over whole days in UTC."""
        query = validate(BillingUsageQuery, request.query_params)
        first = query["starting_on"].astimezone(UTC).date()
        # The day of the last moment before the end.
        last = (query["ending_before"].astimezone(UTC) - timedelta(microseconds=1)).date()
        sums = services.sum_by_workspace(
            self.organization_id, first, last, request.auth.workspace_ids
        )
        return Response(
            [
                {
                    "billable_metric_id": measure,
                    "billable_metric_name": measure.replace("_", " ").capitalize(),
                    "start_timestamp": query["starting_on"],
                    "end_timestamp": query["ending_before"],
                    "value": sum(row[measure] for row in sums.values()),
                    "groups": {str(pk): row[measure] for pk, row in sums.items()},
                }
                for measure in MEASURES
            ]
        )


def _limit_usage_json(use: quotas.LimitUsage) -> dict[str, Any]:
    return {
        **UsageLimitSerializer(use.limit).data,
        "used": use.used,
        "resets_at": use.until,
        "exceeded": use.is_exceeded,
    }


routes = [
    path("orgs/current/billing/usage", BillingUsageView.as_view(), name="billing-usage"),
    path("usage-limits", UsageLimitsView.as_view(), name="usage-limits"),
    path("usage-limits/org", OrganizationLimitsView.as_view(), name="usage-limits-org"),
    path(
        "usage-limits/org/<uuid:limit_id>",
        OrganizationLimitView.as_view(),
        name="usage-limit-org",
    ),
    path("usage-limits/<uuid:limit_id>", UsageLimitView.as_view(), name="usage-limit"),
    path(
        "workspaces/current/usage_limits", CurrentUsageView.as_view(), name="workspace-usage-limits"
    ),
]
