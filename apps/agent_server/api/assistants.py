"""Assistants: graphs with configuration."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import assistant_json, select_fields, version_json
from apps.agent_server.schemas.assistants import (
    AssistantChanges,
    AssistantCount,
    AssistantSearch,
    LatestVersion,
    NewAssistant,
    VersionSearch,
)
from apps.agent_server.services import assistant_changes, assistants
from apps.agent_server.web import query
from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission


class AssistantsView(AgentView):
    @extend_schema(request=NewAssistant)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """Make an assistant: a graph with settings of its own."""
        scope, body = self.admission.authorize("assistants", "create", self.body(NewAssistant))
        return Response(assistant_json(assistant_changes.create(scope, body)))


class AssistantSearchView(AgentView):
    required_permission = Permission.AGENTS_READ
    on_loop = ("POST",)

    @extend_schema(request=AssistantSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """A page of assistants, the newest first unless asked otherwise."""
        scope, body = self.admission.authorize("assistants", "search", self.body(AssistantSearch))
        found, has_more = assistants.search(scope, body)
        rows = [select_fields(assistant_json(assistant), body.select) for assistant in found]
        return paged(rows, body, has_more=has_more)


class AssistantCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=AssistantCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """How many assistants there are."""
        scope, body = self.admission.authorize("assistants", "search", self.body(AssistantCount))
        return Response(assistants.count(scope, body))


class AssistantView(AgentView):
    def get(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        """One assistant, as its active version says."""
        found = self.uuid(assistant_id, "assistant")
        scope = self.admission.resolve_scope("assistants", "read", assistant_id=assistant_id)
        return Response(assistant_json(assistants.get(scope, found)))

    @extend_schema(request=AssistantChanges)
    def patch(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        """Change an assistant, which makes a new version of it.

        `metadata` is merged; `config` and `context` are replaced whole.
        """
        found, changes = self.uuid(assistant_id, "assistant"), self.body(AssistantChanges)
        scope, changes = self.admission.authorize(
            "assistants", "update", changes, assistant_id=assistant_id
        )
        return Response(assistant_json(assistant_changes.update(scope, found, changes)))

    def delete(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        """Delete an assistant with all its versions.

        `delete_threads` also deletes the threads that it ran on last.
        """
        found = self.uuid(assistant_id, "assistant")
        scope = self.admission.resolve_scope("assistants", "delete", assistant_id=assistant_id)
        threads_of = None
        if query.parse_flag(request.query_params.get("delete_threads")):
            threads_of = self.admission.resolve_scope("threads", "delete")
        assistant_changes.delete(scope, found, threads_of=threads_of)
        return Response(status=204)


class AssistantVersionsView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=VersionSearch)
    def post(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        """A page of an assistant's versions, the newest first."""
        found, body = self.uuid(assistant_id, "assistant"), self.body(VersionSearch)
        scope = self.admission.resolve_scope("assistants", "read", assistant_id=assistant_id)
        assistant, versions = assistants.list_versions(scope, found, body)
        return Response([version_json(assistant, version) for version in versions])


class AssistantLatestView(AgentView):
    @extend_schema(request=LatestVersion)
    def post(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        """Make one of an assistant's versions the active one."""
        found, body = self.uuid(assistant_id, "assistant"), self.body(LatestVersion)
        scope, body = self.admission.authorize(
            "assistants", "update", body, assistant_id=assistant_id
        )
        return Response(assistant_json(assistant_changes.set_latest(scope, found, body.version)))


_ASSISTANTS = "agents/<slug:slug>/assistants"
routes = [
    path(f"{_ASSISTANTS}", AssistantsView.as_view()),
    path(f"{_ASSISTANTS}/search", AssistantSearchView.as_view()),
    path(f"{_ASSISTANTS}/count", AssistantCountView.as_view()),
    path(f"{_ASSISTANTS}/<str:assistant_id>", AssistantView.as_view()),
    path(f"{_ASSISTANTS}/<str:assistant_id>/versions", AssistantVersionsView.as_view()),
    path(f"{_ASSISTANTS}/<str:assistant_id>/latest", AssistantLatestView.as_view()),
]
