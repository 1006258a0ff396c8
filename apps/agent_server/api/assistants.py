"""Assistants: graphs with configuration."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import assistant_json, only
from apps.agent_server.bodies.assistants import AssistantCount, AssistantSearch
from apps.agent_server.services import assistants
from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission


class AssistantSearchView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=AssistantSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.grant("assistants", "search", self.body(AssistantSearch))
        found, has_more = assistants.search(scope, body)
        rows = [only(assistant_json(assistant), body.select) for assistant in found]
        return paged(rows, body, has_more=has_more)


class AssistantCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=AssistantCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.grant("assistants", "search", self.body(AssistantCount))
        return Response(assistants.count(scope, body))


class AssistantView(AgentView):
    def get(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        found = self.uuid(assistant_id, "assistant")
        scope = self.admission.scope("assistants", "read", assistant_id=assistant_id)
        return Response(assistant_json(assistants.get(scope, found)))


class AssistantSchemasView(AgentView):
    def get(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        scope = self.admission.scope("assistants", "read", assistant_id=assistant_id)
        graph = assistants.graph_of(scope, assistant_id)
        return Response(assistants.schemas_of(graph))


_ASSISTANTS = "agents/<slug:slug>/assistants"
routes = [
    path(f"{_ASSISTANTS}/search", AssistantSearchView.as_view()),
    path(f"{_ASSISTANTS}/count", AssistantCountView.as_view()),
    path(f"{_ASSISTANTS}/<str:assistant_id>", AssistantView.as_view()),
    path(f"{_ASSISTANTS}/<str:assistant_id>/schemas", AssistantSchemasView.as_view()),
]
