"""Endpoints of the runs in a queue, as the older clients see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.annotation.api.parameters import (
    QueueRunSerializer,
    QueueRunsSerializer,
    RetentionSerializer,
)
from apps.annotation.api.queues import AnnotationAPIView
from apps.annotation.api.rendering import added_run_json, queue_runs_json, status_json
from apps.annotation.errors import QueueItemNotFound
from apps.annotation.services import items as services
from apps.annotation.services.items import RunReference
from apps.annotation.services.reviews import set_status
from apps.annotation.services.sections import ReviewSection, query_items, query_section
from apps.annotation.wire import (
    QueueRunBody,
    QueueRunKeyBody,
    QueueRunsBody,
    WireItemChanges,
    WireRunRemoval,
    WireStatus,
    check_count,
    item_times,
    run_keys,
    run_references,
)
from apps.core.api import ApiRequest
from apps.core.errors import Invalid
from apps.datasets.api.queries import query_params
from apps.datasets.api.request_schema import request_schema
from apps.datasets.wire import decode, parse_time_field
from apps.organizations.permissions import Permission

RUNS_BODY = list[UUID | QueueRunBody] | QueueRunsBody


class ItemAdditionView(AnnotationAPIView):
    """A view that puts runs in a queue."""

    def add(
        self, queue_id: UUID, read_references: Callable[[bytes], list[RunReference]]
    ) -> list[dict[str, Any]]:
        self.request.auth.require(Permission.RUNS_READ)
        queue = self.get_queue(queue_id)
        params = query_params(RetentionSerializer, self.request)
        items = services.add_runs(
            queue=queue,
            references=read_references(self.request.body),
            extend_trace_retention=params["extend_trace_retention"],
        )
        return [added_run_json(item) for item in items]


class QueueRunsView(ItemAdditionView):
    @extend_schema(parameters=[QueueRunsSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return a page of runs of all sections, or of one, in the caller's order."""
        request.auth.require(Permission.RUNS_READ)
        queue = self.get_queue(queue_id)
        params = query_params(QueueRunsSerializer, request)
        if "status" in params:
            items = query_section(queue, self.reviewer_id, params["status"])
        else:
            items = query_items(queue, self.reviewer_id)
        if params["archived"] is not None:
            items = items.archived() if params["archived"] else items.pending()
        page = list(items[params["offset"] : params["offset"] + params["limit"]])
        return Response(
            queue_runs_json(self.workspace_id, page, include_stats=params["include_stats"])
        )

    @extend_schema(
        parameters=[RetentionSerializer],
        request=request_schema(RUNS_BODY),
        responses=list[dict[str, Any]],
    )
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Put runs in the queue: all or none. A run that is in the queue stays once."""
        return Response(self.add(queue_id, run_references))


class QueueRunsByKeyView(ItemAdditionView):
    @extend_schema(
        parameters=[RetentionSerializer],
        request=request_schema(list[QueueRunKeyBody]),
        responses=list[dict[str, Any]],
    )
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Put runs in the queue that are named by id, project and start."""
        return Response(self.add(queue_id, run_keys))


class QueueRunAtView(AnnotationAPIView):
    @extend_schema(parameters=[QueueRunSerializer], responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID, index: int) -> Response:
        """Return the run at the position, from 0, among those for the caller."""
        request.auth.require(Permission.RUNS_READ)
        queue = self.get_queue(queue_id)
        params = query_params(QueueRunSerializer, request)
        items = query_section(queue, self.reviewer_id, ReviewSection.MINE)
        # A position beyond all items would not fit the database's integers.
        page = list(items[index : index + 1]) if index < services.MAX_ITEMS else []
        runs = queue_runs_json(self.workspace_id, page, include_extra=params["include_extra"])
        if not runs:
            raise QueueItemNotFound
        return Response(runs[0])


class QueueRunView(AnnotationAPIView):
    @extend_schema(request=request_schema(WireItemChanges), responses=dict)
    def patch(self, request: ApiRequest, queue_id: UUID, queue_item_id: UUID) -> Response:
        """Set the time of addition, which is the place in the queue, or of the last review."""
        item = services.get_item(self.get_queue(queue_id), queue_item_id)
        wire = decode(request.body, WireItemChanges)
        return Response(added_run_json(services.change_item(item=item, **item_times(wire))))

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest, queue_id: UUID, queue_item_id: UUID) -> Response:
        """Remove the item with this id, or that of the run with this id; its feedback stays."""
        queue = self.get_queue(queue_id)
        item = services.get_item(queue, queue_item_id)
        services.remove_items(queue=queue, item_ids=[item.pk])
        return Response({"message": "Run removed from the annotation queue."})


class QueueRunsRemovalView(AnnotationAPIView):
    @extend_schema(request=request_schema(WireRunRemoval), responses=dict)
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Remove the runs with these ids, or all but the excluded ones; their feedback stays."""
        queue = self.get_queue(queue_id)
        wire = decode(request.body, WireRunRemoval)
        if wire.delete_all == (wire.run_ids is not None):
            raise Invalid("Set either `run_ids` or `delete_all`.")
        check_count(len(wire.run_ids or ()), "run_ids")
        check_count(len(wire.exclude_run_ids or ()), "exclude_run_ids")
        count = services.remove_items(
            queue=queue, run_ids=wire.run_ids, excluded_run_ids=wire.exclude_run_ids or ()
        )
        return Response({"message": f"{count} runs removed from the annotation queue."})


class ItemStatusView(AnnotationAPIView):
    required_permission = Permission.ANNOTATION_QUEUES_REVIEW

    @extend_schema(request=request_schema(WireStatus), responses=dict)
    def post(self, request: ApiRequest, queue_item_id: UUID) -> Response:
        """Set the caller's status: `viewed` reserves the item, `completed` ends the review.

        Null takes both back; `override_added_at` is the item's place in the caller's own order.
        """
        item = services.find_item(self.workspace_id, queue_item_id)
        wire = decode(request.body, WireStatus)
        review = set_status(
            item=item,
            reviewer_id=self.reviewer_id,
            status=wire.status,
            override_added_at=parse_time_field(wire.override_added_at, "override_added_at"),
        )
        return Response(status_json(review))


_RUNS = "annotation-queues/<uuid:queue_id>/runs"
routes = [
    path(
        "annotation-queues/status/<uuid:queue_item_id>",
        ItemStatusView.as_view(),
        name="queue-run-status",
    ),
    path(
        "annotation-queues/<uuid:queue_id>/run/<int:index>",
        QueueRunAtView.as_view(),
        name="queue-run-at",
    ),
    path(_RUNS, QueueRunsView.as_view(), name="queue-run-list"),
    path(f"{_RUNS}/by-key", QueueRunsByKeyView.as_view(), name="queue-run-by-key"),
    path(f"{_RUNS}/delete", QueueRunsRemovalView.as_view(), name="queue-run-removal"),
    path(f"{_RUNS}/<uuid:queue_item_id>", QueueRunView.as_view(), name="queue-run-read-update"),
]
