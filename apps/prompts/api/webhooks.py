"""API of prompt webhooks and their delivery log."""

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
from apps.organizations.permissions import Permission
from apps.prompts.api.serializers import PageSerializer, query_params
from apps.prompts.models import PromptWebhook, WebhookEvent
from apps.prompts.services import webhooks as services
from apps.webhooks import delivery_queue, endpoints
from apps.webhooks.models import Delivery
from apps.webhooks.signed_request import MASK

_PERMISSIONS: dict[str, str] = {"GET": Permission.PROMPTS_READ, "*": Permission.PROMPTS_WRITE}


def _ids_field() -> serializers.ListField:
    return serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=1000
    )


class WebhookSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=4096)
    headers = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False, allow_null=True
    )
    include_prompts = _ids_field()
    exclude_prompts = _ids_field()
    triggers = serializers.ListField(
        child=serializers.ChoiceField(choices=WebhookEvent.values), required=False, allow_null=True
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in attrs.items() if value is not None}


class CreateWebhookSerializer(WebhookSerializer):
    id = serializers.UUIDField(required=False, allow_null=True)


class WebhookChangesSerializer(WebhookSerializer):
    url = serializers.CharField(max_length=4096, required=False, allow_null=True)


class _PayloadSerializer(serializers.Serializer[Any]):
    prompt_id = serializers.CharField(max_length=100)
    prompt_name = serializers.CharField(max_length=200)
    commit_hash = serializers.CharField(max_length=100)
    created_at = serializers.CharField(max_length=100)
    created_by = serializers.CharField(max_length=200, allow_blank=True)
    event = serializers.ChoiceField(choices=WebhookEvent.values)
    manifest = serializers.DictField()
    tag_name = serializers.CharField(required=False, allow_null=True, max_length=100)


class SendTestSerializer(serializers.Serializer[Any]):
    webhook = WebhookSerializer()
    payload = _PayloadSerializer()


class WebhooksView(WorkspaceAPIView):
    required_permission = _PERMISSIONS

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = services.webhooks_of(self.workspace_id)
        return Response([_webhook_json(row, request.auth) for row in rows])

    @extend_schema(request=CreateWebhookSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a webhook. Only this response has its `signing_secret`."""
        params = validate(CreateWebhookSerializer, request.data)
        webhook, secret = services.create_webhook(
            workspace_id=self.workspace_id, webhook_id=params.pop("id", None), fields=params
        )
        return Response(_webhook_json(webhook, request.auth) | {"signing_secret": secret})


class WebhookAPIView(WorkspaceAPIView):
    required_permission = _PERMISSIONS

    def get_webhook(self, webhook_id: UUID) -> PromptWebhook:
        return get_or_404(PromptWebhook.objects.for_workspace(self.workspace_id), pk=webhook_id)


class WebhookView(WebhookAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, webhook_id: UUID) -> Response:
        return Response(_webhook_json(self.get_webhook(webhook_id), request.auth))

    @extend_schema(request=WebhookChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, webhook_id: UUID) -> Response:
        webhook = self.get_webhook(webhook_id)
        changes = validate(WebhookChangesSerializer, request.data)
        changed = services.update_webhook(webhook=webhook, changes=changes)
        return Response(_webhook_json(changed, request.auth))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, webhook_id: UUID) -> Response:
        services.delete_webhook(webhook=self.get_webhook(webhook_id))
        return Response(status=204)


class WebhookSecretView(WebhookAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, webhook_id: UUID) -> Response:
        """Replace the signing secret and return the new one."""
        webhook = self.get_webhook(webhook_id)
        return Response({"signing_secret": services.replace_secret(webhook=webhook)})


class DeliveriesView(WebhookAPIView):
    @extend_schema(parameters=[PageSerializer], responses=dict)
    def get(self, request: ApiRequest, webhook_id: UUID) -> Response:
        """List the deliveries with the log of their attempts, newest first."""
        webhook = self.get_webhook(webhook_id)
        params = query_params(PageSerializer, request)
        start, stop = params["offset"], params["offset"] + params["limit"]
        rows = endpoints.list_deliveries(webhook)[start:stop]
        return Response([_delivery_json(row) for row in rows])


class DeliveryReplayView(WebhookAPIView):
    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Send a finished delivery again, under its `webhook-id`."""
        deliveries = endpoints.list_deliveries(self.get_webhook(webhook_id))
        copy = endpoints.replay(get_or_404(deliveries, pk=delivery_id))
        return Response(_delivery_json(copy), status=202)


class WebhookTestView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_WRITE

    @extend_schema(request=SendTestSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Send the payload once, without a retry."""
        params = validate(SendTestSerializer, request.data)
        result = services.send_test(
            organization_id=request.auth.organization_id,
            fields=params["webhook"],
            payload=params["payload"],
        )
        return Response(
            {
                "status": "delivered" if result.is_delivered else "failed",
                "message": result.error or f"The receiver responded with status {result.status}.",
            }
        )


def _webhook_json(row: PromptWebhook, caller: Caller) -> dict[str, Any]:
    headers = row.headers
    if not caller.may(Permission.PROMPTS_WRITE):
        headers = dict.fromkeys(headers, MASK)
    return {
        "id": row.pk,
        "tenant_id": row.workspace_id,
        "url": row.url,
        "headers": headers,
        "include_prompts": row.include_prompts,
        "exclude_prompts": row.exclude_prompts,
        "triggers": row.triggers,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _delivery_json(row: Delivery) -> dict[str, Any]:
    return delivery_queue.to_json(row) | {
        "tag_name": row.payload.get("tag_name"),
        "prompt_id": row.subject_id,
        "commit_hash": row.payload["commit_hash"],
    }


_WEBHOOK = "prompt-webhooks/<uuid:webhook_id>"
routes = [
    path("prompt-webhooks", WebhooksView.as_view(), name="prompt-webhooks"),
    path("prompt-webhooks/test", WebhookTestView.as_view(), name="prompt-webhook-test"),
    path(_WEBHOOK, WebhookView.as_view(), name="prompt-webhook"),
    path(f"{_WEBHOOK}/secret", WebhookSecretView.as_view(), name="prompt-webhook-secret"),
    path(f"{_WEBHOOK}/deliveries", DeliveriesView.as_view(), name="prompt-webhook-deliveries"),
    path(
        f"{_WEBHOOK}/deliveries/<uuid:delivery_id>/replay",
        DeliveryReplayView.as_view(),
        name="prompt-webhook-replay",
    ),
]
