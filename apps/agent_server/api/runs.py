"""Agent runs: creating them without staying on the line, and reading them."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView
from apps.agent_server.api.serializers import run_json, select_fields
from apps.agent_server.errors import InvalidIdAtRunCreation
from apps.agent_server.schemas.runs import BatchedRun, RunBody
from apps.agent_server.services import runs
from apps.core.api import ApiRequest
from apps.core.errors import Invalid

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


class ThreadRunsView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        select = self.words("select") or None
        if select and not RUN_FIELDS.issuperset(select):
            raise Invalid(f"select: must be among {', '.join(sorted(RUN_FIELDS))}")
        rows = runs.list_newest(
            self.admission.resolve_scope("threads", "read", thread_id=thread_id),
            self.uuid(thread_id, "thread"),
            limit=self.number("limit", 10, least=1, most=1000),
            offset=self.number("offset", 0, least=0, most=2**31),
            status=request.query_params.get("status"),
        )
        return Response([select_fields(run_json(row), select) for row in rows])

    @extend_schema(request=RunBody)
    def post(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        found = self.uuid(thread_id, "thread", InvalidIdAtRunCreation)
        scope, body = self.admission.authorize(
            "threads", "create_run", self.body(RunBody), thread_id=thread_id
        )
        run = runs.create_on_thread(scope, found, body)
        place = f"/threads/{run.thread_id}/runs/{run.run_id}"
        return Response(run_json(run), headers={"Content-Location": place})


class ThreadRunView(AgentView):
    def get(self, request: ApiRequest, slug: str, thread_id: str, run_id: str) -> Response:
        thread, run = self.uuid(thread_id, "thread"), self.uuid(run_id, "run")
        scope = self.admission.resolve_scope("threads", "read", thread_id=thread_id)
        return Response(run_json(runs.get(scope, thread, run)))


class RunsView(AgentView):
    @extend_schema(request=RunBody)
    def post(self, request: ApiRequest, slug: str) -> Response:
        scope, body = self.admission.authorize("threads", "create_run", self.body(RunBody))
        run = runs.create_stateless(scope, body)
        return Response(run_json(run), headers={"Content-Location": f"/runs/{run.run_id}"})


class RunBatchView(AgentView):
    def post(self, request: ApiRequest, slug: str) -> Response:
        wanted = []
        for body in BatchedRun.parse_list(self.request._request.body):
            named = {"thread_id": str(body.thread_id)} if body.thread_id else {}
            wanted.append(self.admission.authorize("threads", "create_run", body, **named))
        return Response([run_json(run) for run in runs.create_batch(wanted)])


_AGENT = "agents/<slug:slug>"
routes = [
    path(f"{_AGENT}/threads/<str:thread_id>/runs", ThreadRunsView.as_view()),
    path(f"{_AGENT}/threads/<str:thread_id>/runs/<str:run_id>", ThreadRunView.as_view()),
    path(f"{_AGENT}/runs", RunsView.as_view()),
    path(f"{_AGENT}/runs/batch", RunBatchView.as_view()),
]
