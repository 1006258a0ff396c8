"""Workspace secrets: set, deleted and listed by name."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.api.request_helpers import validate_list
from apps.organizations.models import WorkspaceSecret
from apps.organizations.permissions import Permission
from apps.organizations.services import secrets


class SecretSerializer(serializers.Serializer[Any]):
    key = serializers.RegexField(r"\A[A-Za-z_][A-Za-z0-9_.-]*\Z", max_length=200)
    value = serializers.CharField(
        max_length=secrets.MAX_VALUE_LENGTH, allow_null=True, trim_whitespace=False
    )


class SecretsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.SECRETS_READ, "*": Permission.SECRETS_WRITE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = WorkspaceSecret.objects.for_workspace(self.workspace_id).order_by("key")
        return Response([{"key": key} for key in rows.values_list("key", flat=True)])

    @extend_schema(request=SecretSerializer(many=True), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Set the secrets in one transaction; null deletes."""
        items = validate_list(SecretSerializer, request.data)
        secrets.set_secrets(
            workspace_id=self.workspace_id,
            values={item["key"]: item["value"] for item in items},
            user_id=request.auth.user_id,
        )
        return Response({})


routes = [path("workspaces/current/secrets", SecretsView.as_view(), name="workspace-secrets")]
