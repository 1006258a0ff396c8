"""API of deployment webhooks and their delivery log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.callers import Caller
from apps.core.tenancy import get_or_404
from apps.deployments.models import Deployment, DeploymentEvent, DeploymentWebhook
from apps.deployments.services import webhooks as services
from apps.organizations.permissions import Permission
from apps.webhooks import delivery_queue, endpoints
from apps.webhooks.signed_request import MASK


class DeploymentWebhookSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=4096)
    headers = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=DeploymentEvent.values), required=False
    )
    deployment_id = serializers.UUIDField(required=False, allow_null=True)
    """None for all deployments."""


class DeliveryPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=100, min_value=1, max_value=100)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=1_000_000)


class DeploymentWebhookAPIView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.DEPLOYMENTS_READ,
        "*": Permission.DEPLOYMENTS_WRITE,
    }

    def get_webhook(self, deployment_webhook_id: UUID) -> DeploymentWebhook:
        rows = DeploymentWebhook.objects.for_workspace(self.workspace_id)
        return get_or_404(rows, pk=deployment_webhook_id)

    def read_fields(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with the deployment in the place of its id."""
        if "deployment_id" in params:
            deployment_id = params.pop("deployment_id")
            rows = Deployment.objects.for_workspace(self.workspace_id).present()
            params["deployment"] = (
                None if deployment_id is None else get_or_404(rows, pk=deployment_id)
            )
        return params


class DeploymentWebhooksView(DeploymentWebhookAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = DeploymentWebhook.objects.for_workspace(self.workspace_id)
        rows = rows.order_by("created_at", "pk")
        return Response([_webhook_json(row, request.auth) for row in rows])

    @extend_schema(request=DeploymentWebhookSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a webhook. Only this response has its `signing_secret`."""
        fields = self.read_fields(validate(DeploymentWebhookSerializer, request.data))
        fields.setdefault("events", DeploymentEvent.values)
        webhook, secret = services.create_webhook(workspace_id=self.workspace_id, fields=fields)
        body = _webhook_json(webhook, request.auth) | {"signing_secret": secret}
        return Response(body, status=201)


class DeploymentWebhookView(DeploymentWebhookAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        return Response(_webhook_json(self.get_webhook(deployment_webhook_id), request.auth))

    @extend_schema(request=DeploymentWebhookSerializer, responses=dict)
    def patch(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        webhook = self.get_webhook(deployment_webhook_id)
        params = validate(DeploymentWebhookSerializer, request.data, partial=True)
        changed = services.update_webhook(webhook=webhook, changes=self.read_fields(params))
        return Response(_webhook_json(changed, request.auth))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        services.delete_webhook(webhook=self.get_webhook(deployment_webhook_id))
        return Response(status=204)


class DeploymentWebhookSecretView(DeploymentWebhookAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        """Replace the signing secret and return the new one."""
        webhook = self.get_webhook(deployment_webhook_id)
        return Response({"signing_secret": services.replace_secret(webhook=webhook)})


class DeploymentWebhookTestView(DeploymentWebhookAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        """Send the event `test`; the log of deliveries has the result."""
        delivery = services.send_test(webhook=self.get_webhook(deployment_webhook_id))
        return Response(delivery_queue.to_json(delivery), status=202)


class DeploymentDeliveriesView(DeploymentWebhookAPIView):
    @extend_schema(parameters=[DeliveryPageSerializer], responses=dict)
    def get(self, request: ApiRequest, deployment_webhook_id: UUID) -> Response:
        """List the deliveries with the log of their attempts, newest first."""
        webhook = self.get_webhook(deployment_webhook_id)
        params = validate(DeliveryPageSerializer, request.query_params)
        start, stop = params["offset"], params["offset"] + params["limit"]
        rows = endpoints.list_deliveries(webhook)[start:stop]
        return Response([delivery_queue.to_json(row) | {"payload": row.payload} for row in rows])


class DeploymentReplayView(DeploymentWebhookAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, deployment_webhook_id: UUID, delivery_id: UUID) -> Response:
        """Send a finished delivery again, under its `webhook-id`."""
        deliveries = endpoints.list_deliveries(self.get_webhook(deployment_webhook_id))
        copy = endpoints.replay(get_or_404(deliveries, pk=delivery_id))
        return Response(delivery_queue.to_json(copy), status=202)


def _webhook_json(row: DeploymentWebhook, caller: Caller) -> dict[str, Any]:
    headers = row.headers
    if not caller.may(Permission.DEPLOYMENTS_WRITE):
        headers = dict.fromkeys(headers, MASK)
    return {
        "id": row.pk,
        "tenant_id": row.workspace_id,
        "url": row.url,
        "headers": headers,
        "events": row.events,
        "deployment_id": row.deployment_id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


_WEBHOOKS = "v1/platform/deployment-webhooks"
_WEBHOOK = f"{_WEBHOOKS}/<uuid:deployment_webhook_id>"
routes = [
    path(_WEBHOOKS, DeploymentWebhooksView.as_view(), name="deployment-webhooks"),
    path(_WEBHOOK, DeploymentWebhookView.as_view(), name="deployment-webhook"),
    path(
        f"{_WEBHOOK}/secret",
        DeploymentWebhookSecretView.as_view(),
        name="deployment-webhook-secret",
    ),
    path(f"{_WEBHOOK}/test", DeploymentWebhookTestView.as_view(), name="deployment-webhook-test"),
    path(
        f"{_WEBHOOK}/deliveries",
        DeploymentDeliveriesView.as_view(),
        name="deployment-webhook-deliveries",
    ),
    path(
        f"{_WEBHOOK}/deliveries/<uuid:delivery_id>/replay",
        DeploymentReplayView.as_view(),
        name="deployment-webhook-replay",
    ),
]
