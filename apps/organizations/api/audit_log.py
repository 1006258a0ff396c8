"""The audit log."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.audit.export import entry_json
from apps.audit.search import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Search, get_page
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
        """List the organization's entries, newest first; `cursor` is null on the last page."""
        query = AuditLogQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        params = query.validated_data
        search = Search(
            organization_id=self.organization_id,
            workspace_id=params.get("workspace_id"),
            action=params["action"],
            actor=params["actor"],
            target=params["target"],
            begin=params.get("start_time"),
            end=params.get("end_time"),
        )
        entries, cursor = get_page(search, cursor=params.get("cursor"), limit=params["limit"])
        return Response({"items": [entry_json(entry) for entry in entries], "cursor": cursor})


routes = [path("audit-logs", AuditLogView.as_view(), name="audit-logs")]
