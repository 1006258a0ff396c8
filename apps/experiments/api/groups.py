"""Endpoints that group results and experiments by metadata."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.timestamps import as_utc
from apps.datasets.services.datasets import get_dataset
from apps.experiments.api.rendering import rows_json
from apps.experiments.api.results import (
    FiltersField,
    experiment_ids_field,
    result_query,
)
from apps.experiments.services.groups import (
    ExperimentGroup,
    GroupStats,
    ResultGroup,
    group_by_example_metadata,
    group_by_run_metadata,
    group_experiments,
)
from apps.experiments.services.results import ResultQuery, load_rows
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.trace_store import NO_PAYLOADS, Payload
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.projects import projects_json
from apps.tracing.models import Project

MAX_GROUPS = 20
MAX_EXAMPLES_PER_GROUP = 20
MAX_KEYS = 5
MAX_GROUPED_EXPERIMENTS = 1000
"""The number of newest experiments that are grouped."""
_PREVIEW_FIELDS = ("inputs_preview", "outputs_preview")


class ResultGroupsSerializer(serializers.Serializer[Any]):
    """The experiments, the metadata key, and the page of groups."""

    session_ids = experiment_ids_field()
    group_by = serializers.ChoiceField(choices=["run_metadata", "example_metadata"])
    metadata_key = serializers.CharField(max_length=1000)
    filters = FiltersField()
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_GROUPS, default=MAX_GROUPS
    )
    offset = serializers.IntegerField(required=False, min_value=0, max_value=10_000, default=0)
    per_group_limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_EXAMPLES_PER_GROUP, default=5
    )
    preview = serializers.BooleanField(required=False, default=False)


class ExperimentGroupsSerializer(serializers.Serializer[Any]):
    """The metadata keys, and filters of the experiments."""

    metadata_keys = serializers.ListField(
        child=serializers.CharField(max_length=1000), min_length=1, max_length=MAX_KEYS
    )
    dataset_version = serializers.CharField(required=False, allow_null=True, max_length=200)
    experiment_limit = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=100
    )
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    name_contains = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    stats_start_time = serializers.DateTimeField(required=False, allow_null=True)
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        allow_null=True,
        max_length=MAX_TAGS_PER_REQUEST,
    )


class ResultGroupsView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(request=ResultGroupsSerializer, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the values of a metadata key with statistics and examples, the largest first.

        A group lists the examples that have a run with the value in every experiment.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = validate(ResultGroupsSerializer, request.data)
        query = result_query(dataset, params["session_ids"], params)
        build = (
            group_by_run_metadata
            if params["group_by"] == "run_metadata"
            else group_by_example_metadata
        )
        groups = build(
            query,
            params["metadata_key"],
            offset=params["offset"],
            limit=params["limit"],
            per_group=params["per_group_limit"],
        )
        experiments = projects_json(self.workspace_id, query.experiments)
        return Response(
            {
                "groups": [
                    _result_group_json(query, group, experiments, preview=params["preview"])
                    for group in groups
                ]
            }
        )


def _result_group_json(
    query: ResultQuery,
    group: ResultGroup,
    experiments: Sequence[dict[str, Any]],
    *,
    preview: bool,
) -> dict[str, Any]:
    payloads = NO_PAYLOADS if preview else frozenset(Payload)
    rows = load_rows(query, group.examples, payloads, is_embedded=True)
    times = {"min_start_time": group.first_time, "max_start_time": group.last_time}
    return {
        "group_key": group.key,
        "filter": group.filter,
        "count": group.total.run_count,
        **group.total.metrics,
        **times,
        "feedback_stats": group.total.feedback,
        "example_count": group.example_count,
        "examples": rows_json(query, rows, _PREVIEW_FIELDS if preview else None),
        "sessions": [
            experiment
            | _session_stats(group.by_experiment[experiment["id"]])
            | times
            | {"filter": group.filter}
            for experiment in experiments
        ],
    }


def _session_stats(stats: GroupStats) -> dict[str, Any]:
    return {
        "run_count": stats.run_count,
        **stats.metrics,
        "feedback_stats": stats.feedback,
        "example_count": stats.example_count,
    }


class ExperimentGroupsView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(request=ExperimentGroupsSerializer, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the experiments by their values of metadata keys, the largest group first.

        Of the newest 1000 experiments; each group lists its newest `experiment_limit`.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = validate(ExperimentGroupsSerializer, request.data)
        names = ("dataset_version", "filter", "name_contains", "tag_value_id")
        selection = {name: params[name] for name in names if params.get(name)}
        matches = project_listing.filter_projects(
            self.workspace_id, selection | {"reference_dataset": [dataset.pk]}
        )
        experiments = list(matches.newest_first()[:MAX_GROUPED_EXPERIMENTS])
        since: datetime | None = params.get("stats_start_time")
        groups = group_experiments(
            dataset, experiments, params["metadata_keys"], None if since is None else as_utc(since)
        )
        limit = params.get("experiment_limit") or MAX_GROUPED_EXPERIMENTS
        listed = [project for group in groups for project in group.experiments[:limit]]
        rendered = _experiments_json(self.workspace_id, listed, params)
        return Response({"groups": [_group_json(group, rendered, limit) for group in groups]})


def _experiments_json(
    workspace_id: UUID, projects: Sequence[Project], params: dict[str, Any]
) -> dict[UUID, dict[str, Any]]:
    stats = {"include_stats": True, "stats_start_time": params.get("stats_start_time")}
    rendered = projects_json(workspace_id, projects, stats) if projects else []
    return {project["id"]: project for project in rendered}


def _group_json(
    group: ExperimentGroup, rendered: dict[UUID, dict[str, Any]], limit: int
) -> dict[str, Any]:
    return {
        "group": group.values,
        "filter": group.filter,
        "count": len(group.experiments),
        "run_count": group.stats.run_count,
        **group.stats.metrics,
        "feedback_stats": group.stats.feedback,
        "session_feedback_stats": group.session_feedback,
        "experiments": [rendered[project.pk] for project in group.experiments[:limit]],
    }


routes = [
    path(
        "datasets/<uuid:dataset_id>/group/runs",
        ResultGroupsView.as_view(),
        name="experiment-result-groups",
    ),
    path(
        "datasets/<uuid:dataset_id>/experiments/grouped",
        ExperimentGroupsView.as_view(),
        name="experiment-groups",
    ),
]
