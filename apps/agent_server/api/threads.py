"""Threads: state that is kept between runs. Making them is for a consumer: it may ask a graph."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import json_fragment, thread_fields, thread_json
from apps.agent_server.schemas.threads import (
    NewThread,
    Prune,
    ThreadChanges,
    ThreadCount,
    ThreadSearch,
)
from apps.agent_server.services import checkpoints, delete_threads, threads
from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission


class ThreadView(AgentView):
    on_loop = ("GET", "PATCH")

    def get(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread")
        scope = self.admission.resolve_scope("threads", "read", thread_id=thread_id)
        shape = thread_json(threads.get(scope, found))
        if "ttl" in self.words("include"):
            shape["ttl"] = json_fragment(threads.read_ttl(scope, found))
        return Response(shape)

    @extend_schema(request=ThreadChanges)
    def patch(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found, changes = self.uuid(thread_id, "thread"), self.body(ThreadChanges)
        scope, changes = self.admission.authorize("threads", "update", changes, thread_id=thread_id)
        row = threads.update(scope, found, changes)
        if request.headers.get("Prefer") == "return=minimal":
            return Response(status=204)
        return Response(thread_json(row))

    def delete(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread")
        delete_threads.delete(
            self.admission.resolve_scope("threads", "delete", thread_id=thread_id), found
        )
        return Response(status=204)


class ThreadSearchView(AgentView):
    required_permission = Permission.AGENTS_READ
    on_loop = ("POST",)

    @extend_schema(request=ThreadSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.authorize("threads", "search", self.body(ThreadSearch))
        found, has_more = threads.search(scope, body)
        return paged([thread_fields(row) for row in found], body, has_more=has_more)


class ThreadCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=ThreadCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.authorize("threads", "search", self.body(ThreadCount))
        return Response(threads.count(scope, body))


class ThreadCopyView(AgentView):
    """The copy is the caller's own: it is made as a new thread is, of one that they may read."""

    def post(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread")
        _, made = self.admission.authorize("threads", "create", NewThread())
        scope = self.admission.resolve_scope("threads", "read", thread_id=thread_id)
        return Response(thread_json(checkpoints.copy(scope, found, made.metadata)))


class PruneView(AgentView):
    @extend_schema(request=Prune)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.authorize("threads", "delete", self.body(Prune))
        pruned = delete_threads.prune(scope, body.thread_ids, body.strategy)
        return Response({"pruned_count": pruned})


class StorageView(AgentView):
    """How many bytes a thread's history takes."""

    def get(self, request: ApiRequest, slug: str, thread_id: str) -> HttpResponse:
        found = self.uuid(thread_id, "thread")
        scope = self.admission.resolve_scope("threads", "read", thread_id=thread_id)
        return HttpResponse(
            checkpoints.measure_storage(scope, found), content_type="application/json"
        )


_THREADS = "agents/<slug:slug>/threads"
routes = [
    path(f"{_THREADS}/search", ThreadSearchView.as_view()),
    path(f"{_THREADS}/count", ThreadCountView.as_view()),
    path(f"{_THREADS}/prune", PruneView.as_view()),
    path(f"{_THREADS}/<str:thread_id>", ThreadView.as_view()),
    path(f"{_THREADS}/<str:thread_id>/copy", ThreadCopyView.as_view()),
    path(f"{_THREADS}/<str:thread_id>/storage", StorageView.as_view()),
]
