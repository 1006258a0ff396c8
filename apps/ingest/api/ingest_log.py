"""The ingest log: counts of received runs by hour and project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.ingest.services import ingest_log
from apps.ingest.services.ingest_log import LogHour
from apps.organizations.permissions import Permission
from apps.tracing.api.v1.serializers import query_params

_DEFAULT_PERIOD = timedelta(days=1)


class IngestLogSerializer(serializers.Serializer[Any]):
    """The query string; the default period is the last day."""

    project_id = serializers.UUIDField(required=False)
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)
    limit = serializers.IntegerField(default=100, min_value=1, max_value=1000)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=1_000_000)


class IngestLogView(WorkspaceAPIView):
    required_permission = Permission.PROJECTS_READ

    @extend_schema(parameters=[IngestLogSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Runs received, stored, merged and rejected (with reasons) by project and hour.

        Newest first. `waiting` counts accepted operations that await their run or parent.
        `unread_usage` counts runs by the name of a token count that was not read, because no
        vocabulary has the name.
        """
        params = query_params(IngestLogSerializer, request)
        end = params.get("end_time") or timezone.now()
        # An `end_time` on the first day of year 1 leaves less than a day before it.
        begin = end - min(_DEFAULT_PERIOD, end - datetime.min.replace(tzinfo=UTC))
        hours = ingest_log.list_hours(
            self.workspace_id,
            begin=params.get("start_time") or begin,
            end=end,
            project_id=params.get("project_id"),
            limit=params["limit"],
            offset=params["offset"],
        )
        deferred_count = ingest_log.count_deferred(self.workspace_id)
        return Response({"hours": [_render(hour) for hour in hours], "waiting": deferred_count})


def _render(hour: LogHour) -> dict[str, Any]:
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
        "unread_usage": hour.unread_usage,
        "removed": hour.removed,
    }


routes = [path("v1/platform/ingest-log", IngestLogView.as_view(), name="ingest-log")]
