"""Routes that clients request first: server information and the list of automation rules."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import ApiRequest, OpenAPIView, WorkspaceAPIView
from apps.organizations.permissions import Permission
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import UpperChoiceField, page_size_field

# The protocol version that clients compare with their minimum; not Slipway's own version.
PROTOCOL_VERSION = "0.18.15"
INFO = {
    "version": PROTOCOL_VERSION,
    "license_expiration_time": None,
    "batch_ingest_config": {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 16,
        "scale_down_nempty_trigger": 4,
        "size_limit": 100,
        "size_limit_bytes": 20_971_520,
    },
    "instance_flags": {
        "zstd_compression_enabled": True,
        "gzip_body_enabled": True,
        "dataset_examples_multipart_enabled": True,
        "examples_multipart_enabled": True,
        "ch_query_enabled": True,
        "sdb_query_enabled": True,
        "blob_storage_enabled": True,
        "show_ttl_ui": False,
        "workspace_scope_org_invites_enabled": False,
        "playground_auth_bypass_enabled": False,
    },
    # Of `/otel/v1`. Metrics and logs are accepted, so that exporters of all signals work.
    "otlp_signals": {"traces": "stored", "metrics": "discarded", "logs": "discarded"},
    "customer_info": None,
    "sdk_versions": None,
    "git_sha": None,
    "billing_installation_id": None,
}


class InfoView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        return Response({**INFO, "region": _region(), "components": _components()})


def _components() -> dict[str, object]:
    """Return which optional components have processes of their own."""
    return {"playground": {"processes": settings.PLAYGROUND_PROCESSES}}


def _region() -> dict[str, object]:
    """Return the region's name, its base URLs, and the IP addresses announced for firewalls."""
    addresses = {
        direction: list(networks) for direction, networks in settings.ANNOUNCED_ADDRESSES.items()
    }
    urls = {
        "ui_url": settings.BASE_URL,
        "api_url": settings.API_BASE_URL,
        "beacon_url": settings.BEACON_BASE_URL,
    }
    return {"name": settings.REGION, **urls, **addresses}


class OkView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        return Response({"ok": True})


class RuleListSerializer(serializers.Serializer[Any]):
    """Query parameters of the list of automation rules."""

    id = serializers.ListField(child=serializers.UUIDField(), required=False)
    session_id = serializers.UUIDField(required=False)
    project_id = serializers.UUIDField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    evaluator_id = serializers.UUIDField(required=False)
    tag_value_id = serializers.ListField(child=serializers.UUIDField(), required=False)
    name_contains = serializers.CharField(required=False)
    type = UpperChoiceField(choices=["SESSION", "PROJECT", "DATASET"], required=False)
    include_backfill_progress = serializers.BooleanField(required=False, default=False)
    cursor = serializers.CharField(required=False)
    page_size = page_size_field(default=20, maximum=100)


class RulesView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[RuleListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """Return an empty list: automation rules cannot be created yet."""
        query_params(RuleListSerializer, request)
        return Response([])


routes = [
    path("info", InfoView.as_view(), name="info"),
    path("info/health", OkView.as_view(), name="info-health"),
    path("ok", OkView.as_view(), name="ok"),
    path("runs/rules", RulesView.as_view(), name="rule-list"),
]
