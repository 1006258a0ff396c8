"""Endpoints of items under `/v1/platform`: pages by cursor, without the content of runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.annotation.api.parameters import (
    ALL,
    ItemCountSerializer,
    ItemListSerializer,
    RetentionSerializer,
)
from apps.annotation.api.queues import AnnotationAPIView
from apps.annotation.api.rendering import item_json, listed_items_json
from apps.annotation.api.runs import ItemStatusView
from apps.annotation.item_cursors import cursor_after, items_before, page_after, page_before
from apps.annotation.querysets import QueueItemQuerySet
from apps.annotation.services import items as services
from apps.annotation.services.sections import (
    ReviewSection,
    find_section,
    query_items,
    query_section,
)
from apps.annotation.wire import (
    WireItemChanges,
    WireItemRemoval,
    WireItems,
    check_count,
    item_references,
    item_times,
)
from apps.core.api import ApiRequest
from apps.core.timestamps import as_utc
from apps.datasets.api.queries import query_params
from apps.datasets.api.request_schema import request_schema
from apps.datasets.wire import decode
from apps.organizations.permissions import Permission

_TIMES = {
    "min_start_time": "start_time__gte",
    "max_start_time": "start_time__lte",
    "start_time": "completed_at__gt",
    "end_time": "completed_at__lt",
}


def _within(items: QueueItemQuerySet, params: dict[str, Any]) -> QueueItemQuerySet:
    """Return the items within the start times of traces and the times of archiving."""
    conditions = {lookup: as_utc(params[name]) for name, lookup in _TIMES.items() if name in params}
    return items.filter(**conditions)


class ItemsView(AnnotationAPIView):
    @extend_schema(parameters=[ItemListSerializer], responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return a page of a section in the caller's order, and the cursor of the next page.

        `direction=backward` returns the items before the cursor's.
        """
        queue = self.get_queue(queue_id)
        params = query_params(ItemListSerializer, request)
        items = query_section(queue, self.reviewer_id, ReviewSection(params["status"]))
        items = _within(items, params)
        if params.get("item_type") == "THREAD":
            items = items.none()  # every item is a run
        size = params["page_size"]
        cursor: Any = params.get("cursor")
        if params["direction"] == "backward":
            page, has_more = page_before(items, cursor, size)
            next_cursor = cursor_after(page[0]) if has_more else None
        else:
            page, has_more = page_after(items, cursor, size)
            next_cursor = cursor_after(page[-1]) if has_more else None
        return Response(
            {"items": listed_items_json(self.workspace_id, page), "next_cursor": next_cursor}
        )

    @extend_schema(
        parameters=[RetentionSerializer], request=request_schema(WireItems), responses=dict
    )
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Put runs in the queue: all or none. A run that is in the queue stays once."""
        request.auth.require(Permission.RUNS_READ)
        queue = self.get_queue(queue_id)
        params = query_params(RetentionSerializer, request)
        items = services.add_runs(
            queue=queue,
            references=item_references(request.body),
            extend_trace_retention=params["extend_trace_retention"],
        )
        return Response({"items": [item_json(item) for item in items]})


class ItemCountView(AnnotationAPIView):
    @extend_schema(parameters=[ItemCountSerializer], responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Return the number of items in a section, or of all, within the times."""
        queue = self.get_queue(queue_id)
        params = query_params(ItemCountSerializer, request)
        if params["status"] == ALL:
            items = query_items(queue, self.reviewer_id)
        else:
            items = query_section(queue, self.reviewer_id, ReviewSection(params["status"]))
        return Response({"count": _within(items, params).count()})


class ItemRemovalView(AnnotationAPIView):
    @extend_schema(request=request_schema(WireItemRemoval), responses=dict)
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Remove the items with these ids; their feedback stays."""
        queue = self.get_queue(queue_id)
        wire = decode(request.body, WireItemRemoval)
        check_count(len(wire.item_ids), "item_ids")
        count = services.remove_items(queue=queue, item_ids=wire.item_ids)
        return Response({"message": f"{count} items removed from the annotation queue."})


class ItemView(AnnotationAPIView):
    @extend_schema(request=request_schema(WireItemChanges), responses=dict)
    def patch(self, request: ApiRequest, queue_id: UUID, queue_item_id: UUID) -> Response:
        """Set the time of addition, which is the place in the queue, or of the last review."""
        item = services.get_item(self.get_queue(queue_id), queue_item_id)
        wire = decode(request.body, WireItemChanges)
        return Response(item_json(services.change_item(item=item, **item_times(wire))))


class ItemPlacementView(AnnotationAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, queue_id: UUID, queue_item_id: UUID) -> Response:
        """Return the item's section, its position from 0, and the cursor of the page it begins."""
        queue = self.get_queue(queue_id)
        item = services.get_item(queue, queue_item_id)
        section = find_section(queue, self.reviewer_id, item)
        rows = query_section(queue, self.reviewer_id, section)
        placed = query_items(queue, self.reviewer_id).get(pk=item.pk)
        before = items_before(rows, placed)
        previous = before.last()
        return Response(
            {
                "section": section,
                "position": before.count(),
                "cursor": None if previous is None else cursor_after(previous),
                "item_type": "RUN",
            }
        )


_ITEMS = "v1/platform/annotation-queues/<uuid:queue_id>/items"
routes = [
    path(
        "v1/platform/annotation-queues/items/<uuid:queue_item_id>/status",
        ItemStatusView.as_view(),
        name="queue-item-status",
    ),
    path(_ITEMS, ItemsView.as_view(), name="queue-item-list"),
    path(f"{_ITEMS}/count", ItemCountView.as_view(), name="queue-item-count"),
    path(f"{_ITEMS}/delete", ItemRemovalView.as_view(), name="queue-item-removal"),
    path(f"{_ITEMS}/<uuid:queue_item_id>", ItemView.as_view(), name="queue-item-update"),
    path(
        f"{_ITEMS}/<uuid:queue_item_id>/placement",
        ItemPlacementView.as_view(),
        name="queue-item-placement",
    ),
]
