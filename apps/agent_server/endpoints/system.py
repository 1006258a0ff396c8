"""Endpoints about the agent server itself: health, versions, metrics."""

from __future__ import annotations

from typing import Any, Literal

from django.conf import settings
from django.db import DatabaseError, connection

from apps.agent_server.endpoints.endpoint import EndpointGroup, json_response
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.base import Flag, Query
from apps.agent_server.scope import Scope
from apps.agent_server.services import metrics
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.deployments.models import Revision
from apps.deployments.routes import Route

PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

endpoints = EndpointGroup("system")


class HealthQuery(Query):
    check_db: Flag = False


class SystemMetricsQuery(Query):
    format: Literal["prometheus", "json"] = "prometheus"


@endpoints.get("/", is_public=True, runs_on_loop=True, response=responses.Alive)
@endpoints.get("/ok", is_public=True, runs_on_loop=True, response=responses.Alive)
def check_health(context: HttpRequestContext, query: HealthQuery) -> Response:
    """Check that the server is available; with `check_db`, its database too."""
    if query.check_db:
        _check_database()
    return json_response({"ok": True})


def _check_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        raise errors.Unavailable("The database does not answer.") from None


@endpoints.get("/info", response=responses.Info)
def get_info(context: HttpRequestContext) -> Response:
    """Get versions, features and the deployment."""
    return json_response(_info(context.admission.route))


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


@endpoints.get("/metrics", response=responses.MetricsFigures)
def get_metrics(context: HttpRequestContext, query: SystemMetricsQuery) -> Response:
    """Get metrics of the queue, the workers and the API, for Prometheus or as JSON (`format`)."""
    agent_metrics = metrics.collect(Scope(context.admission.route))
    if query.format == "json":
        return json_response(agent_metrics.as_json())
    text = agent_metrics.as_text(context.path_params["slug"])
    return Response(text.encode(), media=PROMETHEUS)
