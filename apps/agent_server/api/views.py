"""The JSON views of an Agent Server: everything that neither streams nor waits."""

from __future__ import annotations

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import (
    assistant_json,
    only,
    run_json,
    thread_json,
)
from apps.agent_server.bodies import (
    AssistantCount,
    AssistantSearch,
    NewThread,
    RunBody,
    ThreadChanges,
    ThreadCount,
    ThreadSearch,
)
from apps.agent_server.errors import InvalidIdAtRunCreation
from apps.agent_server.services import assistants, runs, threads
from apps.core.api import ApiRequest, OpenAPIView
from apps.core.errors import Invalid
from apps.organizations.permissions import Permission

RUN_FIELDS = frozenset(
    {
        "run_id",
        "thread_id",
        "assistant_id",
        "created_at",
        "updated_at",
        "status",
        "metadata",
        "kwargs",
        "multitask_strategy",
    }
)


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


class AssistantSearchView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=AssistantSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        body = self.body(AssistantSearch)
        found, has_more = assistants.search(self.route, body)
        rows = [only(assistant_json(assistant), body.select) for assistant in found]
        return paged(rows, body, has_more=has_more)


class AssistantCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=AssistantCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        return Response(assistants.count(self.route, self.body(AssistantCount)))


class AssistantView(AgentView):
    def get(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        found = assistants.get(self.route, self.uuid(assistant_id, "assistant"))
        return Response(assistant_json(found))


class AssistantSchemasView(AgentView):
    def get(self, request: ApiRequest, slug: str, assistant_id: str) -> Response:
        graph = assistants.graph_of(self.route, assistant_id)
        return Response(assistants.schemas_of(graph))


class ThreadsView(AgentView):
    @extend_schema(request=NewThread)
    def post(self, request: ApiRequest, slug: str) -> Response:
        raw = request._request.body or b"{}"
        return Response(thread_json(threads.create(self.route, NewThread.parse(raw))))


class ThreadView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        return Response(thread_json(threads.get(self.route, self.uuid(thread_id, "thread"))))

    @extend_schema(request=ThreadChanges)
    def patch(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found, changes = self.uuid(thread_id, "thread"), self.body(ThreadChanges)
        row = threads.merge_metadata(self.route, found, changes.metadata)
        if request.headers.get("Prefer") == "return=minimal":
            return Response(status=204)
        return Response(thread_json(row))

    def delete(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        threads.delete(self.route, self.uuid(thread_id, "thread"))
        return Response(status=204)


class ThreadSearchView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=ThreadSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        body = self.body(ThreadSearch)
        found, has_more = threads.search(self.route, body)
        rows = [only(thread_json(row), body.select) for row in found]
        return paged(rows, body, has_more=has_more)


class ThreadCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=ThreadCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        return Response(threads.count(self.route, self.body(ThreadCount)))


class ThreadRunsView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        select = self.words("select") or None
        if select and not RUN_FIELDS.issuperset(select):
            raise Invalid(f"select: must be among {', '.join(sorted(RUN_FIELDS))}")
        rows = runs.newest(
            self.route,
            self.uuid(thread_id, "thread"),
            limit=self.number("limit", 10, least=1, most=1000),
            offset=self.number("offset", 0, least=0, most=2**31),
            status=request.query_params.get("status"),
        )
        return Response([only(run_json(row), select) for row in rows])

    @extend_schema(request=RunBody)
    def post(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread", InvalidIdAtRunCreation)
        run = runs.create_on_thread(self.route, found, self.body(RunBody))
        place = f"/threads/{run.thread_id}/runs/{run.run_id}"
        return Response(run_json(run), headers={"Content-Location": place})


class ThreadRunView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str, run_id: str) -> Response:
        thread, run = self.uuid(thread_id, "thread"), self.uuid(run_id, "run")
        return Response(run_json(runs.get(self.route, thread, run)))


class RunsView(AgentView):
    @extend_schema(request=RunBody)
    def post(self, request: ApiRequest, slug: str) -> Response:
        run = runs.create_stateless(self.route, self.body(RunBody))
        return Response(run_json(run), headers={"Content-Location": f"/runs/{run.run_id}"})
