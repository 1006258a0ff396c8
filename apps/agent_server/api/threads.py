"""Threads: state that is kept between runs."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import only, thread_json
from apps.agent_server.bodies.threads import NewThread, ThreadChanges, ThreadCount, ThreadSearch
from apps.agent_server.services import threads
from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission


class ThreadsView(AgentView):
    @extend_schema(request=NewThread)
    def post(self, request: ApiRequest, slug: str) -> Response:
        raw = request._request.body or b"{}"
        scope, body = self.admission.grant("threads", "create", NewThread.parse(raw))
        return Response(thread_json(threads.create(scope, body)))


class ThreadView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread")
        scope = self.admission.scope("threads", "read", thread_id=thread_id)
        return Response(thread_json(threads.get(scope, found)))

    @extend_schema(request=ThreadChanges)
    def patch(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found, changes = self.uuid(thread_id, "thread"), self.body(ThreadChanges)
        scope, changes = self.admission.grant("threads", "update", changes, thread_id=thread_id)
        row = threads.merge_metadata(scope, found, changes.metadata)
        if request.headers.get("Prefer") == "return=minimal":
            return Response(status=204)
        return Response(thread_json(row))

    def delete(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread")
        threads.delete(self.admission.scope("threads", "delete", thread_id=thread_id), found)
        return Response(status=204)


class ThreadSearchView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=ThreadSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.grant("threads", "search", self.body(ThreadSearch))
        found, has_more = threads.search(scope, body)
        rows = [only(thread_json(row), body.select) for row in found]
        return paged(rows, body, has_more=has_more)


class ThreadCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=ThreadCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.grant("threads", "search", self.body(ThreadCount))
        return Response(threads.count(scope, body))


_THREADS = "agents/<slug:slug>/threads"
routes = [
    path(f"{_THREADS}", ThreadsView.as_view()),
    path(f"{_THREADS}/search", ThreadSearchView.as_view()),
    path(f"{_THREADS}/count", ThreadCountView.as_view()),
    path(f"{_THREADS}/<str:thread_id>", ThreadView.as_view()),
]
