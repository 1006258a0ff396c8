"""Endpoints that compare the results of experiments."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django.urls import path
from django.utils.http import content_disposition_header
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.errors import InvalidCursor
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import get_dataset
from apps.experiments.api.rendering import rows_csv, rows_json, rows_v2_json
from apps.experiments.services.comparisons import get_comparison
from apps.experiments.services.deltas import compare_scores
from apps.experiments.services.results import (
    MAX_EXPERIMENTS,
    ResultQuery,
    ResultRow,
    find_examples,
    get_experiments,
    load_rows,
)
from apps.feedback.services import score_stats
from apps.organizations.permissions import Permission
from apps.trace_store import NO_PAYLOADS, ExampleRuns, Payload
from apps.trace_store.cursors import decode_cursor, encode_cursor
from apps.tracing.api.v2.base import V2PageAPIView, build_selection_field, page_size_field
from apps.tracing.api.v2.rendering import SELECTABLE, payloads_for

MAX_PAGE_SIZE = 100
MAX_EXAMPLE_IDS = 1000
MAX_FILTERS = 20
MAX_OFFSET = 2**31 - 1
_FEEDBACK_PREFIX = "feedback."
_PREVIEW_FIELDS = ("inputs_preview", "outputs_preview")
_CSV_PAYLOADS = frozenset({Payload.OUTPUTS, Payload.ERROR})


def experiment_ids_field(*, minimum: int = 1) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.UUIDField(), min_length=minimum, max_length=MAX_EXPERIMENTS
    )


class FiltersField(serializers.DictField):
    """Lists of filter expressions by the id of an experiment."""

    def __init__(self) -> None:
        expressions = serializers.ListField(
            child=serializers.CharField(), max_length=MAX_FILTERS, allow_null=True
        )
        super().__init__(child=expressions, required=False, allow_null=True)

    def to_internal_value(self, data: Any) -> dict[UUID, list[str]]:
        filters = super().to_internal_value(data)
        try:
            return {UUID(name): texts or [] for name, texts in filters.items()}
        except ValueError:
            raise serializers.ValidationError("A key is not the id of an experiment.") from None


class ResultSelectionSerializer(serializers.Serializer[Any]):
    """Fields that select examples and scores."""

    filters = FiltersField()
    comparative_experiment_id = serializers.UUIDField(required=False, allow_null=True)


class ExampleSelectionSerializer(ResultSelectionSerializer):
    example_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=MAX_EXAMPLE_IDS
    )


class ResultPageSerializer(serializers.Serializer[Any]):
    offset = serializers.IntegerField(required=False, min_value=0, max_value=MAX_OFFSET, default=0)
    limit = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_PAGE_SIZE
    )


class ResultSortSerializer(serializers.Serializer[Any]):
    sort_by = serializers.CharField(max_length=1100)
    sort_order = serializers.ChoiceField(
        choices=["ASC", "DESC"], required=False, allow_null=True, default="DESC"
    )


class ResultsSerializer(ExampleSelectionSerializer, ResultPageSerializer):
    """The experiments to compare, and the page of examples."""

    session_ids = experiment_ids_field()
    preview = serializers.BooleanField(required=False, default=False)
    sort_params = ResultSortSerializer(required=False, allow_null=True)
    include_annotator_detail = serializers.BooleanField(required=False, default=False)

    def validate_include_annotator_detail(self, value: bool) -> bool:  # noqa: FBT001  (the framework's call)
        if value:
            raise serializers.ValidationError("Details of annotators are not supported.")
        return value


class ResultsV2Serializer(ExampleSelectionSerializer):
    """The experiments to compare, the selected fields of their runs, and the page of examples."""

    class _Sort(serializers.Serializer[Any]):
        by = serializers.CharField(max_length=1100)
        order = serializers.ChoiceField(
            choices=["ASC", "DESC"], required=False, allow_null=True, default="DESC"
        )

    experiment_ids = experiment_ids_field()
    page_size = page_size_field(default=20, maximum=MAX_PAGE_SIZE)
    cursor = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    selects = build_selection_field(SELECTABLE)
    sort = _Sort(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("sort") and len(attrs["experiment_ids"]) > 1:
            raise serializers.ValidationError("`sort` needs exactly one experiment.")
        return attrs


class DeltaSerializer(ResultSelectionSerializer, ResultPageSerializer):
    """The baseline, the experiments to compare with it, and the score."""

    baseline_session_id = serializers.UUIDField()
    comparison_session_ids = experiment_ids_field()
    feedback_key = serializers.CharField(max_length=1000)


def result_query(
    dataset: Dataset,
    experiment_ids: Sequence[UUID],
    params: dict[str, Any],
    *,
    sort: tuple[str, str | None] | None = None,
) -> ResultQuery:
    """Build the query of a validated body.

    Raises `ExperimentNotFound` and `ComparisonNotFound`.
    """
    comparison_id = params.get("comparative_experiment_id")
    if comparison_id is not None:
        get_comparison(dataset.workspace_id, comparison_id)
    return ResultQuery(
        dataset=dataset,
        experiments=get_experiments(dataset, experiment_ids),
        filters=params.get("filters") or {},
        example_ids=params.get("example_ids"),
        comparison_id=comparison_id,
        sort_key=None if sort is None else sort[0].removeprefix(_FEEDBACK_PREFIX),
        descending=sort is None or sort[1] != "ASC",
    )


class ResultsView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(
        request=ResultsSerializer,
        parameters=[OpenApiParameter("format", str, enum=["csv"])],
        responses=list[dict[str, Any]],
    )
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response | StreamingHttpResponse:
        """Return a page of examples that the experiments ran on, each with all runs.

        An example is in the list if each filtered experiment has a run of it that matches. With
        `format=csv`, stream a table with a line for each run, by default of all examples.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = validate(ResultsSerializer, request.data)
        sort = params.get("sort_params")
        query = result_query(
            dataset,
            params["session_ids"],
            params,
            sort=None if sort is None else (sort["sort_by"], sort["sort_order"]),
        )
        export = request.query_params.get("format")
        if export == "csv":
            return _csv_response(query, params)
        if export is not None:
            raise core_errors.Invalid("`format` must be csv.")
        examples = find_examples(
            query, offset=params["offset"], limit=params.get("limit") or MAX_PAGE_SIZE
        )
        select = _PREVIEW_FIELDS if params["preview"] else None
        payloads = NO_PAYLOADS if params["preview"] else frozenset(Payload)
        rows = load_rows(query, examples, payloads, is_embedded=True)
        return Response(rows_json(query, rows, select))


def _csv_response(query: ResultQuery, params: dict[str, Any]) -> StreamingHttpResponse:
    examples = find_examples(query, offset=params["offset"], limit=params.get("limit"))
    stats = score_stats.by_project_runs(query.workspace_id, query.experiment_ids)
    keys = sorted({key for by_key in stats.values() for key in by_key})
    disposition = content_disposition_header(
        as_attachment=True, filename=f"{query.dataset.name[:100]}.csv"
    )
    return StreamingHttpResponse(
        rows_csv(query, _read_pages(query, examples), keys),
        content_type="text/csv",
        headers={"Content-Disposition": disposition or "attachment"},
    )


def _read_pages(query: ResultQuery, examples: Sequence[ExampleRuns]) -> Iterator[list[ResultRow]]:
    for begin in range(0, len(examples), MAX_PAGE_SIZE):
        yield load_rows(query, examples[begin : begin + MAX_PAGE_SIZE], _CSV_PAYLOADS)


class ResultsV2View(V2PageAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(request=ResultsV2Serializer, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return a page of examples that the experiments ran on, and the next page's cursor."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = validate(ResultsV2Serializer, request.data)
        sort = params.get("sort")
        query = result_query(
            dataset,
            params["experiment_ids"],
            params,
            sort=None if sort is None else (sort["by"], sort["order"]),
        )
        size = params["page_size"] or 20
        position = _Position.parse(params.get("cursor"), is_sorted=query.sort_key is not None)
        matches = find_examples(query, offset=position.offset, after=position.after, limit=size + 1)
        page = matches[:size]
        selected = params.get("selects") or []
        rows = load_rows(query, page, payloads_for(selected), is_embedded=True)
        return Response(
            {
                "items": rows_v2_json(query, rows, selected),
                "next_cursor": position.next(page) if len(matches) > size else None,
            }
        )


@dataclass(frozen=True, slots=True)
class _Position:
    """The place of a page: after an example, or at an offset if scores give the order."""

    offset: int = 0
    after: Any = None
    is_sorted: bool = False

    @classmethod
    def parse(cls, cursor: str | None, *, is_sorted: bool) -> _Position:
        if not cursor:
            return cls(is_sorted=is_sorted)
        if not is_sorted:
            return cls(after=decode_cursor(cursor))
        try:
            offset = int(base64.b64decode(cursor, altchars=b"-_", validate=True))
        except (binascii.Error, ValueError):
            raise InvalidCursor from None
        if not 0 < offset <= MAX_OFFSET:
            raise InvalidCursor
        return cls(offset=offset, is_sorted=True)

    def next(self, page: Sequence[ExampleRuns]) -> str:
        if self.is_sorted:
            return base64.urlsafe_b64encode(str(self.offset + len(page)).encode()).decode()
        return encode_cursor(page[-1].first_time, page[-1].example_id)


class DeltaView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(request=DeltaSerializer, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the examples that each experiment improved or made worse.

        `offset` and `limit` select a page of the examples that are compared.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = validate(DeltaSerializer, request.data)
        baseline_id = params["baseline_session_id"]
        if baseline_id in params["comparison_session_ids"]:
            raise core_errors.Invalid("`comparison_session_ids` has the baseline.")
        ids = [baseline_id, *params["comparison_session_ids"]]
        query = result_query(dataset, ids, params)
        deltas = compare_scores(
            query,
            params["feedback_key"],
            offset=params["offset"],
            limit=params.get("limit") or MAX_PAGE_SIZE,
        )
        return Response(
            {
                "feedback_deltas": {
                    str(experiment_id): {
                        "improved_examples": delta.improved,
                        "regressed_examples": delta.regressed,
                    }
                    for experiment_id, delta in deltas.items()
                }
            }
        )


routes = [
    path("datasets/<uuid:dataset_id>/runs", ResultsView.as_view(), name="experiment-results"),
    path("datasets/<uuid:dataset_id>/runs/delta", DeltaView.as_view(), name="experiment-delta"),
    path(
        "v2/datasets/<uuid:dataset_id>/experiment-runs",
        ResultsV2View.as_view(),
        name="v2-experiment-results",
    ),
]
