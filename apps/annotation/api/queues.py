"""Endpoints of annotation queues."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.annotation import errors
from apps.annotation.api.parameters import (
    ArchiveTimesSerializer,
    QueueDeletionSerializer,
    QueueListSerializer,
    SizeSerializer,
)
from apps.annotation.api.rendering import queue_with_rubric_json, queues_json
from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.querysets import AnnotationQueueQuerySet
from apps.annotation.services import queues as services
from apps.annotation.services.export import export_csv
from apps.annotation.services.items import add_experiments
from apps.annotation.services.sections import ReviewSection, count_items, query_items, query_section
from apps.annotation.wire import (
    WireExport,
    WirePopulation,
    WireQueue,
    WireQueueChanges,
    check_count,
    queue_changes,
    queue_fields,
)
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.errors import Unauthenticated
from apps.core.timestamps import as_utc
from apps.datasets.api.queries import query_params
from apps.datasets.api.request_schema import request_schema
from apps.datasets.wire import decode, parse_time_field
from apps.organizations.models import ResourceType
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import filter_by_tags


class AnnotationAPIView(WorkspaceAPIView):
    """A view of queues or items, which are read by reviewers and changed by editors."""

    required_permission: ClassVar[str | dict[str, str]] = {
        "GET": Permission.ANNOTATION_QUEUES_READ,
        "*": Permission.ANNOTATION_QUEUES_WRITE,
    }

    def get_queue(self, queue_id: UUID) -> AnnotationQueue:
        return services.get_queue(self.workspace_id, queue_id)

    @property
    def reviewer_id(self) -> UUID:
        """The user of the caller; a key without a user is a reviewer of its own."""
        caller = self.request.auth
        reviewer_id = caller.user_id or caller.key_id
        if reviewer_id is None:
            raise Unauthenticated
        return reviewer_id


class QueuesView(AnnotationAPIView):
    @extend_schema(parameters=[QueueListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """Return a page of queues with their numbers of runs, archived ones included."""
        params = query_params(QueueListSerializer, request)
        rows = self._filter(params)
        if params["include_rubric_keys"]:
            rows = rows.with_rubric_keys()
        sign = "-" if params["sort_by_desc"] else ""
        ordered = rows.without_rubric().order_by(f"{sign}{params['sort_by']}", f"{sign}pk")
        page: list[Any] = list(ordered[params["offset"] : params["offset"] + params["limit"]])
        counts = count_items(self.workspace_id, [queue.pk for queue in page])
        result = queues_json(self.workspace_id, page)
        for queue, fields in zip(page, result, strict=True):
            fields["total_runs"] = counts.get(queue.pk, 0)
            if params["include_rubric_keys"]:
                fields["rubric_keys"] = queue.rubric_keys
        return Response(result, headers={"X-Pagination-Total": str(rows.count())})

    def _filter(self, params: dict[str, Any]) -> AnnotationQueueQuerySet:
        rows = AnnotationQueue.objects.for_workspace(self.workspace_id)
        if params.get("queue_type") == "pairwise":
            return rows.none()  # every queue has single runs
        if "ids" in params:
            rows = rows.filter(pk__in=params["ids"])
        if "name" in params:
            rows = rows.filter(name=params["name"])
        if "name_contains" in params:
            rows = rows.filter(name__icontains=params["name_contains"])
        if "dataset_id" in params:
            rows = rows.filter(default_dataset_id=params["dataset_id"])
        if params["assigned_to_me"]:
            rows = rows.filter(reviewers__user_id=self.reviewer_id)
        if params.get("tag_value_id"):
            rows = filter_by_tags(
                rows, self.workspace_id, params["tag_value_id"], [ResourceType.QUEUE]
            )
        return rows

    @extend_schema(request=request_schema(WireQueue), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a queue; the response is without the rubric."""
        wire = decode(request.body, WireQueue)
        experiment_ids = wire.session_ids or ()
        if experiment_ids:
            request.auth.require(Permission.RUNS_READ)
        check_count(len(experiment_ids), "session_ids")
        queue = services.create_queue(
            workspace_id=self.workspace_id,
            rubric_items=wire.rubric_items or (),
            experiment_ids=experiment_ids,
            **queue_fields(wire),
        )
        return Response(queues_json(self.workspace_id, [queue])[0])

    @extend_schema(parameters=[QueueDeletionSerializer], responses={200: dict})
    def delete(self, request: ApiRequest) -> Response:
        """Delete the queues; if one does not exist, none is deleted."""
        ids = set(query_params(QueueDeletionSerializer, request)["queue_ids"])
        rows = AnnotationQueue.objects.for_workspace(self.workspace_id).filter(pk__in=ids)
        queues = list(rows)
        if len(queues) < len(ids):
            raise errors.QueueNotFound
        services.delete_queues(queues=queues)
        return Response({"message": f"{len(queues)} annotation queues deleted."})


class QueueView(AnnotationAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        return Response(queue_with_rubric_json(self.get_queue(queue_id)))

    @extend_schema(request=request_schema(WireQueueChanges), responses=dict)
    def patch(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Change the given fields; `rubric_items` replaces the rubric."""
        queue = self.get_queue(queue_id)
        wire = decode(request.body, WireQueueChanges)
        changed = services.update_queue(
            queue=queue, changes=queue_changes(wire), rubric_items=wire.rubric_items
        )
        return Response(queue_with_rubric_json(changed))

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Delete the queue with its items; runs and feedback stay."""
        services.delete_queues(queues=[self.get_queue(queue_id)])
        return Response({"message": "Annotation queue deleted."})


class PopulateView(AnnotationAPIView):
    @extend_schema(request=request_schema(WirePopulation), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Put the root runs of experiments in a queue. Safe to repeat."""
        request.auth.require(Permission.RUNS_READ)
        wire = decode(request.body, WirePopulation)
        check_count(len(wire.session_ids), "session_ids", minimum=1)
        count = add_experiments(
            queue=self.get_queue(wire.queue_id),
            experiment_ids=wire.session_ids,
            extend_trace_retention=wire.extend_trace_retention,
        )
        return Response({"message": f"The queue has the {count} runs of the experiments."})


class RunQueuesView(AnnotationAPIView):
    @extend_schema(responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """Return the queues that have the run."""
        queues = services.queues_with_run(self.workspace_id, run_id)
        return Response(queues_json(self.workspace_id, queues))


class SizeView(AnnotationAPIView):
    @extend_schema(parameters=[SizeSerializer], responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return the number of items in a section; by default, of those for the caller."""
        queue = self.get_queue(queue_id)
        section = query_params(SizeSerializer, request).get("status", ReviewSection.MINE)
        return Response({"size": query_section(queue, self.reviewer_id, section).count()})


class TotalSizeView(AnnotationAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return the number of all items, archived ones included."""
        items = query_items(self.get_queue(queue_id), self.reviewer_id)
        return Response({"size": items.count()})


class TotalArchivedView(AnnotationAPIView):
    @extend_schema(parameters=[ArchiveTimesSerializer], responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return the number of items that were archived between the times, exclusive."""
        params = query_params(ArchiveTimesSerializer, request)
        items = QueueItem.objects.for_workspace(self.workspace_id).archived()
        items = items.filter(queue=self.get_queue(queue_id))
        if "start_time" in params:
            items = items.filter(completed_at__gt=as_utc(params["start_time"]))
        if "end_time" in params:
            items = items.filter(completed_at__lt=as_utc(params["end_time"]))
        return Response({"size": items.count()})


class QueueExportView(AnnotationAPIView):
    required_permission = Permission.ANNOTATION_QUEUES_READ

    @extend_schema(request=request_schema(WireExport), responses={(200, "text/csv"): str})
    def post(self, request: ApiRequest, queue_id: UUID) -> StreamingHttpResponse:
        """Return the archived items as CSV, with the feedback on the keys of the rubric."""
        request.auth.require(Permission.RUNS_READ)
        request.auth.require(Permission.FEEDBACK_READ)
        queue = self.get_queue(queue_id)
        wire = decode(request.body, WireExport)
        lines = export_csv(
            queue,
            start_time=parse_time_field(wire.start_time, "start_time"),
            end_time=parse_time_field(wire.end_time, "end_time"),
            by_reviewer=wire.include_annotator_detail,
        )
        return StreamingHttpResponse(
            lines,
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="annotation-queue.csv"'},
        )


_QUEUE = "annotation-queues/<uuid:queue_id>"
routes = [
    path("annotation-queues", QueuesView.as_view(), name="annotation-queue-list"),
    path("annotation-queues/populate", PopulateView.as_view(), name="annotation-queue-populate"),
    path(_QUEUE, QueueView.as_view(), name="annotation-queue-read-update"),
    path(
        "annotation-queues/<uuid:run_id>/queues",
        RunQueuesView.as_view(),
        name="annotation-queues-of-run",
    ),
    path(f"{_QUEUE}/size", SizeView.as_view(), name="annotation-queue-size"),
    path(f"{_QUEUE}/total_size", TotalSizeView.as_view(), name="annotation-queue-total-size"),
    path(
        f"{_QUEUE}/total_archived",
        TotalArchivedView.as_view(),
        name="annotation-queue-total-archived",
    ),
    path(f"{_QUEUE}/export", QueueExportView.as_view(), name="annotation-queue-export"),
]
