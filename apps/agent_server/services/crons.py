"""Creation, changes and reads of crons. `cron_firing` fires them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.agent_server import errors, schedules
from apps.agent_server.models import Cron, Thread
from apps.agent_server.querysets import CronQuerySet
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.schemas.crons import CronChangesBase, CronCount, CronSearch, NewCron
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants, checkpoints, threads, webhooks
from apps.core.ids import uuid7
from apps.core.tenancy import check_row_limit

MAX_CRONS = 10_000
_SORTED_BY = {"cron_id": "id", "thread_id": "thread__thread_id"}


def create(scope: Scope, body: NewCron) -> Cron:
    """Create a cron that starts each run on a new thread."""
    return _insert(scope, body, None)


def create_on_thread(scope: Scope, threads_scope: Scope, thread_id: UUID, body: NewCron) -> Cron:
    """Create a cron on a thread that is visible in `threads_scope`."""
    thread = threads.queryset_for(threads_scope).filter(thread_id=thread_id).first()
    if thread is None:
        raise errors.ThreadNotFound(thread_id)
    return _insert(scope, body, thread)


def _check_checkpoints(scope: Scope, thread: Thread | None, body: NewCron) -> None:
    """Raise if the cron's runs would start from a checkpoint that their thread does not have."""
    keys = body.checkpoint_keys
    if thread is not None:
        body.check_checkpoint_thread(thread.thread_id)
        checkpoints.require(scope.unfiltered(), thread.thread_id, keys)
    elif keys:
        raise errors.UnknownCheckpoint(keys[0].field, keys[0].checkpoint_id)


def _insert(scope: Scope, body: NewCron, thread: Thread | None) -> Cron:
    _check_webhook(scope, body)
    _check_checkpoints(scope, thread, body)
    assistant_id = _resolve_assistant_id(scope, body.assistant_id)
    cron = Cron(
        id=uuid7(),
        workspace_id=scope.route.workspace_id,
        deployment_id=scope.route.deployment_id,
        assistant_id=assistant_id,
        thread=thread,
        metadata=body.metadata,
        user=scope.user,
    )
    _apply_body(cron, body, {**body.payload, "assistant_id": str(assistant_id)})
    with transaction.atomic():
        cron.save(force_insert=True)
        check_row_limit(queryset_for(scope.unfiltered()), MAX_CRONS, "crons of a deployment")
    return cron


def _check_webhook(scope: Scope, body: NewCron) -> None:
    if body.webhook is not None:
        webhooks.validate(body.webhook, scope.route)


def _resolve_assistant_id(scope: Scope, name_or_id: str) -> UUID:
    assistants.ensure_system_assistants(scope.route)
    assistant_id = assistants.resolve_id(scope, name_or_id)
    if not assistants.queryset_for(scope.unfiltered()).filter(assistant_id=assistant_id).exists():
        raise errors.AssistantNotFound(reference=assistant_id)
    return assistant_id


def _apply_body(cron: Cron, body: NewCron, payload: JSONObject) -> None:
    now = timezone.now()
    cron.schedule, cron.timezone = body.schedule, body.timezone
    cron.end_time, cron.enabled = body.end_time, body.enabled
    cron.on_run_completed = None if cron.thread_id else body.on_run_completed
    cron.payload = with_cron_id(payload, cron.pk)
    cron.updated_at = now
    if cron._state.adding:  # noqa: SLF001  (documented by Django)
        cron.created_at = now
    schedule_next(cron, now)


def schedule_next(cron: Cron, after: datetime) -> None:
    """Set the cron's first firing time after `after`."""
    cron.next_run_date = schedules.next_fire_time(cron.schedule, cron.timezone, after)
    is_over = cron.end_time is not None and cron.next_run_date > cron.end_time
    cron.due_at = None if is_over or not cron.enabled else cron.next_run_date


def with_cron_id(payload: JSONObject, cron_id: UUID) -> JSONObject:
    """Add the cron's id to the configuration that its graph receives."""
    config = payload.get("config") or {}
    configurable = {**config.get("configurable", {}), "cron_id": str(cron_id)}
    return {**payload, "config": {**config, "configurable": configurable}}


def without_cron_id(payload: JSONObject) -> JSONObject:
    """The client's payload without the cron's id, for validation."""
    config = dict(payload.get("config") or {})
    configurable = {k: v for k, v in config.pop("configurable", {}).items() if k != "cron_id"}
    return {
        **payload,
        "config": {**config, **({"configurable": configurable} if configurable else {})},
    }


@transaction.atomic
def update(scope: Scope, cron_id: UUID, changes: CronChangesBase) -> Cron:
    """Change the cron and validate the result as a whole."""
    cron = (
        queryset_for(scope).select_for_update(no_key=True, of=("self",)).filter(pk=cron_id).first()
    )
    if cron is None:
        raise errors.CronNotFound
    fields = changes.changed_fields
    payload = {**_drop_replaced(without_cron_id(cron.payload), fields), **fields}
    body = NewCron.check(payload)
    if "webhook" in fields:
        _check_webhook(scope, body)
    if fields.keys() & {"checkpoint", "checkpoint_id", "config"}:
        _check_checkpoints(scope, cron.thread, body)
    if "assistant_id" in fields:
        cron.assistant_id = _resolve_assistant_id(scope, body.assistant_id)
        payload["assistant_id"] = str(cron.assistant_id)
    cron.metadata = {**cron.metadata, **fields.get("metadata", {})}
    _apply_body(cron, body, {name: value for name, value in payload.items() if value is not None})
    cron.save()
    return cron


def _drop_replaced(payload: JSONObject, fields: JSONObject) -> JSONObject:
    """Drop `configurable` if the change sets `context`, and vice versa."""
    if "context" in fields:
        config = {k: v for k, v in payload["config"].items() if k != "configurable"}
        return {**payload, "config": config}
    if fields.get("config", {}).get("configurable"):
        return {name: value for name, value in payload.items() if name != "context"}
    return payload


def get(scope: Scope, cron_id: UUID) -> Cron:
    cron = queryset_for(scope).filter(pk=cron_id).first()
    if cron is None:
        raise errors.CronNotFound
    return cron


def delete(scope: Scope, cron_id: UUID) -> None:
    deleted, _ = queryset_for(scope).filter(pk=cron_id).delete()
    if not deleted:
        raise errors.CronNotFound


def queryset_for(scope: Scope) -> CronQuerySet:
    """The crons of the agent that the caller may see."""
    rows = Cron.objects.for_workspace(scope.route.workspace_id).select_related("thread")
    return rows.for_deployment(scope.route.deployment_id).with_metadata(scope.visible)


def search(scope: Scope, body: CronSearch) -> tuple[list[Cron], bool]:
    """One page of crons, and whether there are more."""
    sign = "-" if body.sort_order == "desc" else ""
    column = _SORTED_BY.get(body.sort_by, body.sort_by)
    rows = _search_queryset(scope, body).order_by(f"{sign}{column}", f"{sign}id")
    page = list(rows[body.offset : body.offset + body.limit + 1])
    return page[: body.limit], len(page) > body.limit


def count(scope: Scope, body: CronCount) -> int:
    return _search_queryset(scope, body).count()


def _search_queryset(scope: Scope, body: CronCount) -> QuerySet[Cron]:
    rows = queryset_for(scope)
    if body.assistant_id is not None:
        rows = rows.filter(assistant_id=body.assistant_id)
    if body.thread_id is not None:
        rows = rows.filter(thread__thread_id=body.thread_id)
    if body.enabled is not None:
        rows = rows.filter(enabled=body.enabled)
    if body.metadata:
        rows = rows.filter(metadata__contains=body.metadata)
    return rows
