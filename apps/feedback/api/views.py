"""Feedback on runs and projects."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.feedback.api.queries import FeedbackListSerializer, page_of_feedback
from apps.feedback.api.rendering import feedback_json, names_of
from apps.feedback.models import Feedback
from apps.feedback.services import feedback as services
from apps.feedback.wire import WireChange, WireFeedback, decode_change, decode_feedback
from apps.ingest.wire import Refusal
from apps.organizations.permissions import Permission


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The request body of a struct, for the description of the API."""
    (_,), found = msgspec.json.schema_components([struct])
    return {"application/json": found[struct.__name__]}


class FeedbackListView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    @extend_schema(parameters=[FeedbackListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """A page of feedback, newest first."""
        rows = Feedback.objects.for_workspace(self.workspace_id)
        page, wants_names = page_of_feedback(request, rows)
        names = names_of(page) if wants_names else {}
        return Response([feedback_json(one, names) for one in page])

    @extend_schema(request=schema_of(WireFeedback), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Give feedback. Its run may come later; an id that is there is given anew."""
        try:
            one = decode_feedback(request.body)
            given = services.give_feedback(self.workspace_id, one, user_id=request.auth.user_id)
        except Refusal as refusal:
            raise core_errors.Invalid(str(refusal)) from None
        return Response(feedback_json(given))


class FeedbackView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    def _feedback(self, feedback_id: UUID) -> Feedback:
        return get_or_404(Feedback.objects.for_workspace(self.workspace_id), pk=feedback_id)

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, feedback_id: UUID) -> Response:
        one = self._feedback(feedback_id)
        return Response(feedback_json(one, names_of([one])))

    @extend_schema(request=schema_of(WireChange), responses=dict)
    def patch(self, request: ApiRequest, feedback_id: UUID) -> Response:
        """Only what is given changes; null is a value."""
        one = self._feedback(feedback_id)
        try:
            changes = decode_change(request.body or b"{}")
        except Refusal as refusal:
            raise core_errors.Invalid(str(refusal)) from None
        return Response(feedback_json(services.change_feedback(one, changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, feedback_id: UUID) -> Response:
        services.delete_feedback(self._feedback(feedback_id))
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
