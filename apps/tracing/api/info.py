"""Server information. Clients request it first, and without a valid key."""

from __future__ import annotations

from django.conf import settings
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import OpenAPIView
from apps.core.regions import REGIONS

# The protocol version that clients compare with their minimum; not Slipway's own version.
PROTOCOL_VERSION = "0.18.0"
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
    "customer_info": None,
    "sdk_versions": None,
    "git_sha": None,
    "billing_installation_id": None,
}


class InfoView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        return Response({**INFO, "region": _region()})


def _region() -> dict[str, object]:
    """Return the region's name and its IP addresses for firewall allowlists."""
    region = REGIONS[settings.REGION]
    return {"name": region.name, "egress": region.egress, "ingress": region.ingress}


class OkView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        return Response({"ok": True})


routes = [
    path("info", InfoView.as_view(), name="info"),
    path("info/health", OkView.as_view(), name="info-health"),
    path("ok", OkView.as_view(), name="ok"),
]
