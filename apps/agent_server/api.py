"""Views outside of the endpoints: the API page, and the secret that signs webhooks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.views.generic import TemplateView
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.auth.access import require_deployed
from apps.agent_server.endpoints.serializers import format_optional_timestamp, format_timestamp
from apps.agent_server.services import webhooks
from apps.agent_server.services.webhooks import Secret
from apps.audit.services import is_impersonated
from apps.core import errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission


class ApiPageView(TemplateView):
    """The page of the agent's OpenAPI document."""

    template_name = "agent_server/docs.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        require_deployed(slug)
        return super().get(request, slug=slug)


class WebhookSecretView(WorkspaceAPIView):
    """The secret that signs a deployment's webhooks; for its developers, not for its users."""

    required_permission = Permission.DEPLOYMENTS_WRITE

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID) -> Response:
        if is_impersonated():
            raise errors.Forbidden("Secrets are not shown while impersonating a user.")
        secret = webhooks.get_secret(self._deployment(deployment_id))
        if secret is None:
            raise errors.NotFound("The deployment has no webhook secret yet: create it with POST.")
        return Response(_secret_json(secret))

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        """Create or replace the secret; a replaced one also signs for a day."""
        deployment = self._deployment(deployment_id)
        return Response(_secret_json(webhooks.replace_secret(deployment=deployment)))

    def _deployment(self, deployment_id: UUID) -> Deployment:
        present = Deployment.objects.for_workspace(self.workspace_id).present()
        return get_or_404(present, pk=deployment_id)


def _secret_json(secret: Secret) -> dict[str, Any]:
    return {
        "secret": secret.text,
        "created_at": format_timestamp(secret.created_at),
        "previous_signs_until": format_optional_timestamp(secret.previous_signs_until),
    }
