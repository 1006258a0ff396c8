"""Endpoints of feedback on runs and projects."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.feedback.api.queries import FeedbackListSerializer, read_feedback_page
from apps.feedback.api.rendering import feedback_json, user_names
from apps.feedback.models import Feedback
from apps.feedback.services import feedback as services
from apps.feedback.wire import FeedbackChanges, WireFeedback, decode_changes, decode_feedback
from apps.organizations.permissions import Permission


def request_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the OpenAPI schema of a request body that is decoded into the struct."""
    (_,), schemas = msgspec.json.schema_components([struct])
    return {"application/json": schemas[struct.__name__]}


class FeedbackListView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    @extend_schema(parameters=[FeedbackListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of feedback, newest first."""
        rows = Feedback.objects.for_workspace(self.workspace_id)
        page, with_names = read_feedback_page(request, rows)
        names = user_names(page) if with_names else {}
        return Response([feedback_json(item, names) for item in page])

    @extend_schema(request=request_schema(WireFeedback), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create feedback, or replace the feedback with the same id. The run may arrive later."""
        decoded = decode_feedback(request.body)
        feedback = services.create_feedback(
            self.workspace_id, decoded, user_id=request.auth.user_id
        )
        return Response(feedback_json(feedback))


class FeedbackView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    def _get_feedback(self, feedback_id: UUID) -> Feedback:
        return get_or_404(Feedback.objects.for_workspace(self.workspace_id), pk=feedback_id)

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, feedback_id: UUID) -> Response:
        feedback = self._get_feedback(feedback_id)
        return Response(feedback_json(feedback, user_names([feedback])))

    @extend_schema(request=request_schema(FeedbackChanges), responses=dict)
    def patch(self, request: ApiRequest, feedback_id: UUID) -> Response:
        """Change the fields in the body; null clears a field."""
        feedback = self._get_feedback(feedback_id)
        changes = decode_changes(request.body or b"{}")
        return Response(feedback_json(services.change_feedback(feedback, changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, feedback_id: UUID) -> Response:
        services.delete_feedback(self._get_feedback(feedback_id))
        return Response(status=204)


routes = [
    path("feedback", FeedbackListView.as_view(), name="feedback-list"),
    path(
        "feedback/eager",
        FeedbackListView.as_view(http_method_names=["post", "options"]),
        name="feedback-eager",
    ),
    path("feedback/<uuid:feedback_id>", FeedbackView.as_view(), name="feedback-read-update"),
]
