"""Experiments that the public link of their dataset shows, without authentication."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import OpenAPIView
from apps.datasets.api.queries import DatasetPageSerializer, IdsField, query_params
from apps.datasets.services.sharing import resolve_experiments_link
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.projects import projects_json

_NO_WORKSPACE = UUID(int=0)
# Others are settings of the workspace, or metadata that names authors and machines.
_SHOWN_FIELDS = frozenset(
    {
        *("id", "name", "description", "reference_dataset_id", "start_time", "end_time"),
        *("run_count", "last_run_start_time", "test_run_number", "experiment_progress"),
        *("latency_p50", "latency_p99", "first_token_p50", "first_token_p99", "error_rate"),
        *("prompt_tokens", "completion_tokens", "total_tokens"),
        *("prompt_cost", "completion_cost", "total_cost"),
        *("feedback_stats", "session_feedback_stats"),
    }
)


class SharedExperimentListSerializer(DatasetPageSerializer):
    """Query parameters of the experiments of a link."""

    id = IdsField()
    name = serializers.CharField(required=False)
    name_contains = serializers.CharField(required=False)
    sort_by = serializers.ChoiceField(
        choices=project_listing.COLUMN_SORTS, required=False, default="start_time"
    )
    sort_by_desc = serializers.BooleanField(required=False, default=True)
    include_stats = serializers.BooleanField(required=False, default=False)


class SharedExperimentsView(OpenAPIView):
    @extend_schema(parameters=[SharedExperimentListSerializer], responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        """Return a page of the experiments, newest first, on request with statistics.

        `tenant_id`, which clients require, is the nil UUID: a link does not name its workspace.
        """
        dataset = resolve_experiments_link(token)
        params = query_params(SharedExperimentListSerializer, request)
        selection = {**params, "reference_dataset": [dataset.pk]}
        page, total = project_listing.list_page(dataset.workspace_id, selection)
        rows = projects_json(dataset.workspace_id, page, params)
        return Response(
            [_shared_json(row) for row in rows], headers={"X-Pagination-Total": str(total)}
        )


def _shared_json(experiment: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in experiment.items() if name in _SHOWN_FIELDS}
    return {**shown, "tenant_id": _NO_WORKSPACE}


routes = [
    path(
        "public/<uuid:token>/datasets/sessions",
        SharedExperimentsView.as_view(),
        name="public-experiments",
    ),
]
