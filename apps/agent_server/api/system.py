"""What an Agent Server says of itself."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views import View
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView
from apps.agent_server.openapi.custom_routes import document_of
from apps.agent_server.scope import Scope
from apps.agent_server.services import metrics
from apps.agent_server.web import query
from apps.core import errors
from apps.core.api import ApiRequest, OpenAPIView
from apps.core.tenancy import get_or_404
from apps.deployments.models import Revision
from apps.deployments.routes import Route

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class OkView(OpenAPIView):
    """Alive; for load balancers and chat pages, so it is open."""

    def get(self, request: ApiRequest, slug: str) -> Response:
        """Whether the server is there; with `check_db`, whether its database is."""
        if query.parse_flag(request.query_params.get("check_db")):
            _check_database()
        return Response({"ok": True})


def _check_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        raise errors.Unavailable("The database does not answer.") from None


class InfoView(AgentView):
    def get(self, request: ApiRequest, slug: str) -> Response:
        """Versions, what is offered, and which deployment this is."""
        return Response(_info(self.route))


def _info(route: Route) -> dict[str, Any]:
    versions: dict[str, Any] = {}
    if route.active_revision_id is not None:
        revisions = Revision.objects.for_workspace(route.workspace_id)
        versions = get_or_404(revisions, pk=route.active_revision_id).facts.get("versions", {})
    return {
        "version": settings.SPECTACULAR_SETTINGS["VERSION"],
        "langgraph_py_version": versions.get("langgraph"),
        "python_version": versions.get("python"),
        "flags": {
            "assistants": True,
            "crons": True,
            "langsmith": route.tracing,
            "langsmith_tracing_replicas": False,
        },
        "host": {
            "kind": "slipway",
            "project_id": route.deployment_id,
            "revision_id": route.active_revision_id,
            "deployment": route.name,
        },
    }


class MetricsView(AgentView):
    def get(self, request: ApiRequest, slug: str) -> HttpResponse:
        """Figures of the queue, the workers and the API, for Prometheus or as JSON (`format`)."""
        found = metrics.collect(Scope(self.route))
        match request.query_params.get("format", "prometheus"):
            case "json":
                return Response(found.as_json())
            case "prometheus":
                return HttpResponse(found.as_text(slug), content_type=PROMETHEUS)
        raise errors.Invalid("format: must be prometheus or json")


class OpenAPIDocumentView(OpenAPIView):
    def get(self, request: ApiRequest, slug: str) -> HttpResponse:
        """This description, in OpenAPI 3.1."""
        return HttpResponse(document_of(slug), content_type="application/json")


class DocsView(View):
    """A page: not for negotiation about JSON."""

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """This description as a page."""
        return render(request, "agent_server/docs.html", {"slug": slug})


_AGENT = "agents/<slug:slug>"
routes = [
    path(_AGENT, OkView.as_view()),
    path(f"{_AGENT}/ok", OkView.as_view()),
    path(f"{_AGENT}/info", InfoView.as_view()),
    path(f"{_AGENT}/metrics", MetricsView.as_view()),
    path(f"{_AGENT}/openapi.json", OpenAPIDocumentView.as_view()),
    path(f"{_AGENT}/docs", DocsView.as_view()),
]
