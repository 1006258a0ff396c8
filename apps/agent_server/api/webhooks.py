"""How webhooks went, and the secret that they are signed with."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView
from apps.agent_server.api.serializers import format_timestamp
from apps.agent_server.models import WebhookDelivery
from apps.agent_server.services import webhooks
from apps.agent_server.services.webhooks import Secret
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission


class ThreadRunWebhooksView(AgentView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, slug: str, thread_id: str, run_id: str) -> Response:
        """The webhooks of a run, with every attempt; an empty list before its end."""
        thread, run = self.uuid(thread_id, "thread"), self.uuid(run_id, "run")
        scope = self.admission.resolve_scope("threads", "read", thread_id=thread_id)
        return Response([_delivery_json(row) for row in webhooks.list_for_run(scope, run, thread)])


class RunWebhooksView(AgentView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, slug: str, run_id: str) -> Response:
        """The webhooks of a stateless run, also when it is gone itself."""
        run = self.uuid(run_id, "run")
        scope = self.admission.resolve_scope("threads", "read")
        return Response([_delivery_json(row) for row in webhooks.list_for_run(scope, run)])


class WebhookSecretView(WorkspaceAPIView):
    """On the control plane: users of an agent have no business with what it signs with."""

    required_permission = Permission.DEPLOYMENTS_WRITE

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID) -> Response:
        return Response(_secret_json(webhooks.get_secret(self._deployment(deployment_id))))

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        """Replace the secret; the old one signs as well for a day."""
        deployment = self._deployment(deployment_id)
        return Response(_secret_json(webhooks.replace_secret(deployment=deployment)))

    def _deployment(self, deployment_id: UUID) -> Deployment:
        present = Deployment.objects.for_workspace(self.workspace_id).present()
        return get_or_404(present, pk=deployment_id)


def _delivery_json(row: WebhookDelivery) -> dict[str, Any]:
    is_open = row.status in {"due", "sending"}
    return {
        "webhook_id": f"msg_{row.pk}",
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "url": row.url,
        "status": row.status,
        "attempts": row.attempts,
        "response_status": row.response_status,
        "last_error": row.last_error or None,
        "log": row.log,
        "next_attempt_at": _moment(row.due_at) if is_open else None,
        "created_at": _moment(row.created_at),
        "delivered_at": _moment(row.delivered_at),
    }


def _secret_json(secret: Secret) -> dict[str, Any]:
    return {
        "secret": secret.text,
        "created_at": format_timestamp(secret.created_at),
        "previous_signs_until": _moment(secret.previous_signs_until),
    }


def _moment(value: datetime | None) -> str | None:
    return format_timestamp(value) if value else None


_AGENT = "agents/<slug:slug>"
routes = [
    path(
        f"{_AGENT}/threads/<str:thread_id>/runs/<str:run_id>/webhooks",
        ThreadRunWebhooksView.as_view(),
    ),
    path(f"{_AGENT}/runs/<str:run_id>/webhooks", RunWebhooksView.as_view()),
]
control_routes = [
    path("v2/deployments/<uuid:deployment_id>/webhook-secret", WebhookSecretView.as_view()),
]
