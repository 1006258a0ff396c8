"""Endpoints of comparisons of experiments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets.api.queries import DatasetPageSerializer, IdsField, query_params
from apps.datasets.api.request_schema import request_schema
from apps.datasets.errors import ExperimentNotFound
from apps.datasets.services.datasets import get_dataset
from apps.datasets.wire import clean_name, decode, parse_time_field, storable_json
from apps.experiments.api.rendering import comparison_json, listed_comparison_json
from apps.experiments.models import NAME_LENGTH, ComparativeExperiment
from apps.experiments.services import comparisons as services
from apps.experiments.services.results import MAX_EXPERIMENTS
from apps.experiments.wire import WireComparison
from apps.feedback.services import score_stats
from apps.organizations.permissions import Permission
from apps.tracing.models import Project


class ComparisonListSerializer(DatasetPageSerializer):
    id = IdsField()
    name = serializers.CharField(required=False)
    name_contains = serializers.CharField(required=False)
    sort_by = serializers.ChoiceField(
        choices=["name", "created_at"], required=False, default="created_at"
    )
    sort_by_desc = serializers.BooleanField(required=False, default=True)


class ComparisonsView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=request_schema(WireComparison), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Compare two or more experiments; without a dataset, on the first one's dataset."""
        wire = decode(request.body, WireComparison)
        if not 2 <= len(set(wire.experiment_ids)) <= MAX_EXPERIMENTS:
            raise core_errors.Invalid(
                f"`experiment_ids` must have 2 to {MAX_EXPERIMENTS} experiments."
            )
        dataset_id = wire.reference_dataset_id or self._dataset_of(wire.experiment_ids[0])
        comparison = services.create_comparison(
            dataset=get_dataset(self.workspace_id, dataset_id),
            experiment_ids=wire.experiment_ids,
            comparison_id=wire.id,
            created_at=parse_time_field(wire.created_at, "created_at"),
            modified_at=parse_time_field(wire.modified_at, "modified_at"),
            name=None if wire.name is None else clean_name(wire.name, NAME_LENGTH),
            description=wire.description and wire.description.replace("\x00", "\ufffd"),
            extra=storable_json(wire.extra or {}),
        )
        return Response(comparison_json(comparison))

    def _dataset_of(self, experiment_id: UUID) -> UUID:
        projects = Project.objects.for_workspace(self.workspace_id).present().experiments()
        ids = projects.filter(pk=experiment_id).values_list("reference_dataset_id", flat=True)
        dataset_id = ids.first()
        if dataset_id is None:
            raise ExperimentNotFound(f"There is no experiment {experiment_id}.")
        return dataset_id


class ComparisonView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_DELETE

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest, comparison_id: UUID) -> Response:
        """Delete the comparison with its feedback; the experiments stay."""
        comparison = services.get_comparison(self.workspace_id, comparison_id)
        services.delete_comparison(comparison=comparison)
        return Response({"message": "Comparison deleted."})


class DatasetComparisonsView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(parameters=[ComparisonListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return a page of the dataset's comparisons with their experiments and scores."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(ComparisonListSerializer, request)
        rows = ComparativeExperiment.objects.for_workspace(self.workspace_id)
        rows = rows.filter(dataset=dataset)
        if "id" in params:
            rows = rows.filter(pk__in=params["id"])
        if "name" in params:
            rows = rows.filter(name=params["name"])
        if "name_contains" in params:
            rows = rows.filter(name__icontains=params["name_contains"])
        sign = "-" if params["sort_by_desc"] else ""
        ordered = rows.order_by(f"{sign}{params['sort_by']}", f"{sign}pk")
        page = list(ordered[params["offset"] : params["offset"] + params["limit"]])
        names = services.experiment_names(self.workspace_id, page)
        stats = score_stats.by_comparison(self.workspace_id, [item.pk for item in page])
        return Response(
            [listed_comparison_json(item, names, stats.get(item.pk, {})) for item in page],
            headers={"X-Pagination-Total": str(rows.count())},
        )


routes = [
    path("datasets/comparative", ComparisonsView.as_view(), name="comparison-create"),
    path(
        "datasets/comparative/<uuid:comparison_id>",
        ComparisonView.as_view(),
        name="comparison-delete",
    ),
    path(
        "datasets/<uuid:dataset_id>/comparative",
        DatasetComparisonsView.as_view(),
        name="comparison-list",
    ),
]
