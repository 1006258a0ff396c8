"""What an Agent Server says of itself."""

from __future__ import annotations

from django.conf import settings
from django.urls import path
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView
from apps.core.api import ApiRequest, OpenAPIView


class OkView(OpenAPIView):
    """Alive; for load balancers and chat pages, so it is open."""

    def get(self, request: ApiRequest, slug: str) -> Response:
        return Response({"ok": True})


class InfoView(AgentView):
    def get(self, request: ApiRequest, slug: str) -> Response:
        revision = self.route.active_revision_id
        return Response(
            {
                "version": settings.SPECTACULAR_SETTINGS["VERSION"],
                "langgraph_py_version": None,
                "flags": {
                    "assistants": True,
                    "crons": False,
                    "langsmith": self.route.tracing,
                    "langsmith_tracing_replicas": False,
                },
                "host": {
                    "kind": "slipway",
                    "project_id": self.route.deployment_id,
                    "revision_id": revision,
                    "deployment": self.route.name,
                },
            }
        )


_AGENT = "agents/<slug:slug>"
routes = [
    path(f"{_AGENT}/ok", OkView.as_view()),
    path(f"{_AGENT}/info", InfoView.as_view()),
]
