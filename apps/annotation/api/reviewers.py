"""Endpoints of the reviewers who are assigned to a queue."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.annotation.api.queues import AnnotationAPIView
from apps.annotation.api.rendering import queues_json
from apps.annotation.models import AnnotationQueue
from apps.annotation.services import reviewers as services
from apps.annotation.services.reviews import refresh_items
from apps.annotation.wire import WireReviewers, check_count
from apps.core.api import ApiRequest
from apps.datasets.api.request_schema import request_schema
from apps.datasets.wire import decode


def _reviewers_json(queue: AnnotationQueue) -> Any:
    return queues_json(queue.workspace_id, [queue])[0]["assigned_reviewers"]


class ReviewersView(AnnotationAPIView):
    @extend_schema(responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, queue_id: UUID) -> Response:
        return Response(_reviewers_json(self.get_queue(queue_id)))

    @extend_schema(request=request_schema(WireReviewers), responses=list[dict[str, Any]])
    def post(self, request: ApiRequest, queue_id: UUID) -> Response:
        """Assign users of the workspace, by the ids of users or members. Safe to repeat."""
        queue = self.get_queue(queue_id)
        wire = decode(request.body, WireReviewers)
        check_count(len(wire.identity_ids), "identity_ids", minimum=1)
        with transaction.atomic():
            services.assign_reviewers(queue=queue, identity_ids=wire.identity_ids)
            refresh_items(queue)
        return Response(_reviewers_json(queue))


class ReviewerView(AnnotationAPIView):
    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, queue_id: UUID, identity_id: UUID) -> Response:
        """End the assignment of a user; the user's reviews stay."""
        queue = self.get_queue(queue_id)
        with transaction.atomic():
            services.unassign_reviewer(queue=queue, identity_id=identity_id)
            refresh_items(queue)
        return Response(status=204)


_REVIEWERS = "v1/platform/annotation-queues/<uuid:queue_id>/reviewers"
routes = [
    path(_REVIEWERS, ReviewersView.as_view(), name="queue-reviewer-list"),
    path(f"{_REVIEWERS}/<uuid:identity_id>", ReviewerView.as_view(), name="queue-reviewer"),
]
