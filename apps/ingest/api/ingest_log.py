"""What came in, hour by hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.ingest.services import ingest_log
from apps.ingest.services.ingest_log import LedgerHour
from apps.organizations.permissions import Permission
from apps.tracing.api.serializers import query_params

_USUAL = timedelta(days=1)


class LedgerSerializer(serializers.Serializer[Any]):
    """The query string; without times the last day."""

    project_id = serializers.UUIDField(required=False)
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)
    limit = serializers.IntegerField(default=100, min_value=1, max_value=1000)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=1_000_000)


class LedgerView(WorkspaceAPIView):
    required_permission = Permission.PROJECTS_READ

    @extend_schema(parameters=[LedgerSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Runs received, stored, merged and refused (with reasons) of each project and hour.

        Newest first. `waiting` counts updates and children that were accepted and are kept until
        the run they belong to comes.
        """
        asked = query_params(LedgerSerializer, request)
        end = asked.get("end_time") or timezone.now()
        found = ingest_log.hours(
            self.workspace_id,
            begin=asked.get("start_time") or end - _USUAL,
            end=end,
            project_id=asked.get("project_id"),
            limit=asked["limit"],
            offset=asked["offset"],
        )
        waiting = ingest_log.waiting(self.workspace_id)
        return Response({"hours": [_json(hour) for hour in found], "waiting": waiting})


def _json(hour: LedgerHour) -> dict[str, Any]:
    return {
        "hour": hour.hour,
        "project_id": hour.project_id,
        "project_name": hour.project_name,
        "received": hour.received,
        "stored": hour.stored,
        "traces": hour.traces,
        "merged": hour.merged,
        "refused": hour.refused,
        "reasons": hour.reasons,
        "removed": hour.removed,
    }


routes = [path("v1/platform/ingest-ledger", LedgerView.as_view(), name="ingest-ledger")]
