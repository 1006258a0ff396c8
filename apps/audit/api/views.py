"""The audit log for machines."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.audit.export import as_json
from apps.audit.search import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Search, page
from apps.core.api import OrganizationAPIView
from apps.organizations.permissions import OrganizationPermission


class AuditLogQuery(serializers.Serializer[None]):
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)
    cursor = serializers.CharField(required=False, max_length=500)
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE_SIZE, default=DEFAULT_PAGE_SIZE
    )
    action = serializers.CharField(required=False, max_length=64, default="")
    actor = serializers.CharField(required=False, max_length=254, default="")
    target = serializers.CharField(required=False, max_length=200, default="")
    workspace_id = serializers.UUIDField(required=False)


class AuditLogView(OrganizationAPIView):
    required_permission = OrganizationPermission.AUDIT_READ

    @extend_schema(parameters=[AuditLogQuery], responses=dict)
    def get(self, request: Request) -> Response:
        """The organization's log, newest first; `cursor` leads on and is null at the end."""
        query = AuditLogQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        search = Search(
            organization_id=self.organization_id,
            workspace_id=asked.get("workspace_id"),
            action=asked["action"],
            actor=asked["actor"],
            target=asked["target"],
            begin=asked.get("start_time"),
            end=asked.get("end_time"),
        )
        found, cursor = page(search, cursor=asked.get("cursor"), limit=asked["limit"])
        return Response({"items": [as_json(entry) for entry in found], "cursor": cursor})


routes = [path("audit-logs", AuditLogView.as_view(), name="audit-logs")]
