"""Endpoints of crons: runs that start on a schedule."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from apps.agent_server.endpoints.endpoint import EndpointGroup, json_response, page_response
from apps.agent_server.endpoints.serializers import cron_json, format_timestamp, select_fields
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.crons import CronChanges, CronCount, CronSearch, NewCron
from apps.agent_server.services import crons
from apps.agent_server.web.http_context import NO_CONTENT, HttpRequestContext, Response
from apps.organizations.permissions import Permission

endpoints = EndpointGroup("crons")


@endpoints.post("/runs/crons", response=responses.Cron)
def create_cron(context: HttpRequestContext, body: NewCron) -> Response:
    """Start runs on a schedule, each on its own thread."""
    scope, body = context.admission.authorize("crons", "create", body)
    return json_response(cron_json(crons.create(scope, body)))


@endpoints.post("/threads/{thread_id}/runs/crons", response=responses.Cron)
def create_thread_cron(context: HttpRequestContext, thread_id: UUID, body: NewCron) -> Response:
    """Start runs on a schedule on this thread."""
    threads_scope = context.admission.resolve_scope("threads", "create_run", **context.path_params)
    scope, body = context.admission.authorize("crons", "create", body, **context.path_params)
    return json_response(cron_json(crons.create_on_thread(scope, threads_scope, thread_id, body)))


@endpoints.get("/runs/crons/{cron_id}", response=responses.Cron)
def get_cron(context: HttpRequestContext, cron_id: UUID) -> Response:
    """Get a cron with the time of its next run."""
    scope = context.admission.resolve_scope("crons", "read", **context.path_params)
    return json_response(cron_json(crons.get(scope, cron_id)))


@endpoints.patch("/runs/crons/{cron_id}", response=responses.Cron, raw_body_model=CronChanges)
def update_cron(context: HttpRequestContext, cron_id: UUID, raw_body: bytes) -> Response:
    """Change a cron; `metadata` is merged, everything else is replaced."""
    scope, changes = context.admission.authorize(
        "crons",
        "update",
        CronChanges.parse(raw_body),
        **context.path_params,
    )
    return json_response(cron_json(crons.update(scope, cron_id, changes)))


@endpoints.delete("/runs/crons/{cron_id}")
def delete_cron(context: HttpRequestContext, cron_id: UUID) -> Response:
    """Delete a cron; the runs that it started stay."""
    scope = context.admission.resolve_scope("crons", "delete", **context.path_params)
    crons.delete(scope, cron_id)
    return NO_CONTENT


@endpoints.post(
    "/runs/crons/search",
    permission=Permission.AGENTS_READ,
    response=list[responses.SomeOfCron],
)
def search_crons(context: HttpRequestContext, body: CronSearch) -> Response:
    """List a page of crons, newest first by default."""
    scope, body = context.admission.authorize("crons", "search", body)
    page, has_more = crons.search(scope, body)
    now = {"now": format_timestamp(timezone.now())} if body.select else {}
    rows = [select_fields({**cron_json(cron), **now}, body.select) for cron in page]
    return page_response(rows, body.offset, has_more=has_more)


@endpoints.post("/runs/crons/count", permission=Permission.AGENTS_READ, response=int)
def count_crons(context: HttpRequestContext, body: CronCount) -> Response:
    """Count crons."""
    scope, body = context.admission.authorize("crons", "search", body)
    return json_response(crons.count(scope, body))
