"""Push notifications of A2A tasks: the clients' addresses, and the requests to them.

The transaction that changes a task inserts a delivery for each address (`a2a/statements.py`). The
sender of all webhooks sends it, with its retries, its log and its checks of addresses.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.agent_server import prepared_sql
from apps.agent_server.a2a import rpc, statements
from apps.agent_server.a2a.params import PushConfig, PushParams, invalid
from apps.agent_server.a2a.rendering import TaskView, to_legacy_task
from apps.agent_server.a2a.rpc import A2AError
from apps.agent_server.models import A2APushConfig
from apps.agent_server.querysets import A2APushConfigQuerySet
from apps.agent_server.scope import Scope
from apps.agent_server.services import deliveries
from apps.agent_server.statuses import TaskState
from apps.agent_server.webhooks import rules
from apps.core.ids import uuid7
from apps.core.json import dumps, dumps_text
from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.models import Delivery
from apps.webhooks.policy import WebhookBlocked

JSONObject = dict[str, Any]
MAX_PER_TASK = 10
MAX_OPEN_PER_ORGANIZATION = 10_000
"""Addresses of all tasks that have not ended."""
TOKEN_HEADER = "x-a2a-notification-token"  # noqa: S105  (a name)

_LOCK_TASK = "SELECT 1 FROM agent_server_a2atask WHERE id = %s FOR NO KEY UPDATE"
_COUNT_OPEN = """
SELECT count(*) FROM (
    SELECT 1 FROM agent_server_a2apushconfig c
    JOIN agent_server_a2atask t ON t.id = c.task_id
    WHERE t.state IN ('', 'input-required') AND c.workspace_id IN (
        SELECT id FROM organizations_workspace WHERE organization_id = %s
    )
    LIMIT %s
) open
"""


def is_offered(scope: Scope) -> bool:
    """Whether the agent sends notifications: its langgraph.json may disable all webhooks."""
    return not scope.route.serving.http.disable_webhooks


def require_offered(scope: Scope) -> None:
    if not is_offered(scope):
        raise A2AError(rpc.PUSH_NOT_SUPPORTED)


def check_address(scope: Scope, config: PushConfig) -> None:
    """Raise `A2AError` for an address that the platform or the agent does not allow."""
    require_offered(scope)
    try:
        rules.validate(config.url, scope.route)
    except WebhookBlocked as error:
        raise invalid(f"url: {error.detail}") from None


@transaction.atomic
def save(scope: Scope, task: TaskView, config: PushConfig, *, is_legacy: bool) -> A2APushConfig:
    """Create a configuration of the task, or replace the one with the same id.

    The address must have been checked. Raises `A2AError` at a limit.
    """
    # In 0.3 the id defaults to that of the task, so clients set and get without an id.
    config_id = config.config_id or (str(task.id) if is_legacy else str(uuid7()))
    workspace, _ = scope.key
    # Equal requests at the same time create one configuration, and the limit holds.
    if prepared_sql.fetch_row(_LOCK_TASK, [task.id]) is None:
        raise A2AError(rpc.TASK_NOT_FOUND)
    rows = A2APushConfig.objects.for_workspace(workspace).filter(task_id=task.id)
    row = rows.filter(config_id=config_id).first()
    if row is None:
        if rows.count() >= MAX_PER_TASK:
            raise invalid(f"A task has at most {MAX_PER_TASK} push configurations.")
        parameters = [scope.route.organization_id, MAX_OPEN_PER_ORGANIZATION]
        count = prepared_sql.fetch_row(_COUNT_OPEN, parameters)
        if count is not None and count[0] >= MAX_OPEN_PER_ORGANIZATION:
            text = f"The organization has {MAX_OPEN_PER_ORGANIZATION} push configurations of tasks."
            raise invalid(text)
        row = A2APushConfig(workspace_id=workspace, task_id=task.id, config_id=config_id)
    row.url, row.is_legacy = config.url, is_legacy
    row.secrets = {
        "token": config.token,
        "scheme": config.scheme,
        "credentials": config.credentials,
    }
    row.save()
    return row


def get(scope: Scope, task: TaskView, config_id: str | None) -> A2APushConfig:
    """A configuration of the task; without an id the newest. Raises `A2AError`."""
    rows = _rows(scope, task)
    if config_id is not None:
        rows = rows.filter(config_id=config_id)
    row = rows.order_by("-pk").first()
    if row is None:
        raise A2AError(rpc.TASK_NOT_FOUND, "The task has no such push configuration.")
    return row


def list_page(scope: Scope, task: TaskView, params: PushParams) -> tuple[list[A2APushConfig], str]:
    """A page of the configurations, oldest first, and the token of the next one or ""."""
    rows = _rows(scope, task).order_by("pk")
    if params.page_token is not None:
        try:
            rows = rows.filter(pk__gt=UUID(params.page_token))
        except ValueError:
            raise invalid("pageToken: must be the token of the previous page.") from None
    page = list(rows[: params.page_size + 1])
    has_more = len(page) > params.page_size
    page = page[: params.page_size]
    return page, str(page[-1].pk) if has_more else ""


def delete(scope: Scope, task: TaskView, config_id: str) -> None:
    """Delete a configuration, if it exists."""
    _rows(scope, task).filter(config_id=config_id).delete()


def _rows(scope: Scope, task: TaskView) -> A2APushConfigQuerySet:
    workspace, _ = scope.key
    return A2APushConfig.objects.for_workspace(workspace).filter(task_id=task.id)


def as_json(row: A2APushConfig, *, is_legacy: bool) -> JSONObject:
    """The configuration as its client wrote it, with its secrets: only its callers read it."""
    secrets = row.secrets
    config: JSONObject = {"id": row.config_id, "url": row.url}
    if secrets["token"]:
        config["token"] = secrets["token"]
    if secrets["scheme"]:
        name, value = (
            ("schemes", [secrets["scheme"]]) if is_legacy else ("scheme", secrets["scheme"])
        )
        config["authentication"] = {name: value}
        if secrets["credentials"]:
            config["authentication"]["credentials"] = secrets["credentials"]
    task_id = str(row.task_id)
    if is_legacy:
        return {"taskId": task_id, "pushNotificationConfig": config}
    return {"taskId": task_id, **config}


def notify_submitted(run_id: UUID) -> None:
    """Schedule notifications of a task whose run was created, in the same transaction."""
    prepared_sql.execute(statements.ADD_PUSHES_OF_SUBMITTED, [[run_id]])


def notify_ended(run_id: UUID) -> None:
    """Schedule notifications of a paused task that was cancelled."""
    prepared_sql.execute(statements.ADD_PUSHES_OF_ENDED, [[run_id]])


def build_request(delivery: Delivery) -> WebhookRequest | DeliveryResult:
    """The request of a delivery. Raises `WebhookBlocked`."""
    rows = A2APushConfig.objects.for_workspace(delivery.workspace_id)
    config = rows.select_related("task").filter(pk=delivery.endpoint_id).first()
    if config is None:
        return DeliveryResult(error="The push configuration was deleted.", is_final=True)
    sender = deliveries.load_sender(delivery.workspace_id, config.task.deployment_id)
    if sender is None or sender.is_disabled:
        reason = deliveries.WEBHOOKS_DISABLED if sender else "The agent was deleted."
        return DeliveryResult(error=reason, is_final=True)
    content = _render(_to_view(delivery), delivery.event, is_legacy=config.is_legacy)
    if content is None:
        return DeliveryResult()
    body = dumps(content)
    target = sender.rules.parse_target(config.url)
    headers = {
        "user-agent": "Slipway-Webhook/1",
        **_credentials(config.secrets),
        "content-type": "application/json",
        **delivery_request.signature_headers(
            sender.keys, f"msg_{delivery.message_id}", int(time.time()), body
        ),
    }
    return WebhookRequest(target, sender.rules, headers, body)


def _credentials(secrets: dict[str, str]) -> dict[str, str]:
    headers = {TOKEN_HEADER: secrets["token"]} if secrets["token"] else {}
    if secrets["scheme"]:
        headers["authorization"] = f"{secrets['scheme']} {secrets['credentials']}".strip()
    return headers


def _to_view(delivery: Delivery) -> TaskView:
    """The task as it was at the change."""
    payload = delivery.payload
    output, interrupts, error = (
        None if payload[name] is None else dumps_text(payload[name])
        for name in ("output", "interrupts", "error")
    )
    return TaskView(
        delivery.subject_id,
        payload["context_id"],
        UUID(payload["thread_id"]),
        UUID(payload["run_id"]),
        TaskState(payload["state"]),
        "[]",
        output,
        interrupts,
        error,
        datetime.fromisoformat(payload["updated_at"]),
    )


def _render(task: TaskView, event: str, *, is_legacy: bool) -> JSONObject | None:
    """The body of a notification; None if the task has no artifact to tell of."""
    if is_legacy:
        return to_legacy_task(task.as_json(history_length=0))
    if event == statements.STATUS:
        return task.status_update()
    for artifact in task.artifacts:
        return task.artifact_update(artifact["parts"], append=False, is_last=True)
    return None
