"""Crons: runs that a schedule starts."""

from __future__ import annotations

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView, paged
from apps.agent_server.api.serializers import cron_json, format_timestamp, select_fields
from apps.agent_server.schemas.crons import CronChanges, CronCount, CronSearch, NewCron
from apps.agent_server.services import crons
from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission


class CronsView(AgentView):
    @extend_schema(request=NewCron)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """Start runs by a schedule, each on a thread of its own."""
        scope, body = self.admission.authorize("crons", "create", self.body(NewCron))
        return Response(cron_json(crons.create(scope, body)))


class ThreadCronsView(AgentView):
    @extend_schema(request=NewCron)
    def post(self, request: ApiRequest, slug: str, thread_id: str) -> Response:
        """Start runs by a schedule on this thread."""
        found, body = self.uuid(thread_id, "thread"), self.body(NewCron)
        on = self.admission.resolve_scope("threads", "create_run", thread_id=thread_id)
        scope, body = self.admission.authorize("crons", "create", body, thread_id=thread_id)
        return Response(cron_json(crons.create_on_thread(scope, on, found, body)))


class CronView(AgentView):
    def get(self, request: ApiRequest, slug: str, cron_id: str) -> Response:
        """One cron, with the moment when it fires next."""
        found = self.uuid(cron_id, "cron")
        scope = self.admission.resolve_scope("crons", "read", cron_id=cron_id)
        return Response(cron_json(crons.get(scope, found)))

    @extend_schema(request=CronChanges)
    def patch(self, request: ApiRequest, slug: str, cron_id: str) -> Response:
        """Change a cron; `metadata` is merged, everything else is replaced."""
        found, changes = self.uuid(cron_id, "cron"), self.body(CronChanges)
        scope, changes = self.admission.authorize("crons", "update", changes, cron_id=cron_id)
        return Response(cron_json(crons.update(scope, found, changes)))

    def delete(self, request: ApiRequest, slug: str, cron_id: str) -> Response:
        """Delete a cron; the runs that it started stay."""
        found = self.uuid(cron_id, "cron")
        crons.delete(self.admission.resolve_scope("crons", "delete", cron_id=cron_id), found)
        return Response(status=204)


class CronSearchView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=CronSearch)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """A page of crons, the newest first unless asked otherwise."""
        scope, body = self.admission.authorize("crons", "search", self.body(CronSearch))
        found, has_more = crons.search(scope, body)
        now = {"now": format_timestamp(timezone.now())} if body.select else {}
        rows = [select_fields({**cron_json(cron), **now}, body.select) for cron in found]
        return paged(rows, body, has_more=has_more)


class CronCountView(AgentView):
    required_permission = Permission.AGENTS_READ

    @extend_schema(request=CronCount)
    def post(self, request: ApiRequest, slug: str) -> Response:
        """How many crons there are."""
        scope, body = self.admission.authorize("crons", "search", self.body(CronCount))
        return Response(crons.count(scope, body))


_AGENT = "agents/<slug:slug>"
routes = [
    path(f"{_AGENT}/runs/crons", CronsView.as_view()),
    path(f"{_AGENT}/runs/crons/search", CronSearchView.as_view()),
    path(f"{_AGENT}/runs/crons/count", CronCountView.as_view()),
    path(f"{_AGENT}/runs/crons/<str:cron_id>", CronView.as_view()),
    path(f"{_AGENT}/threads/<str:thread_id>/runs/crons", ThreadCronsView.as_view()),
]
