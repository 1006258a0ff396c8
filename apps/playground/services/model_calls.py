"""Claims, extends and records the calls of experiments, for the workers that make them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.errors import AppError
from apps.core.json import is_too_deep, loads, storable
from apps.experiment_jobs.models import ExperimentJob
from apps.playground.models import CallStatus, ModelCall
from apps.playground.querysets import ModelCallQuerySet
from apps.playground.services import call_records
from apps.playground.services.call_records import CallRecord, ModelCallResult
from apps.playground.services.model_runner import letter_of, setting_of
from apps.playground.services.streaming import build_chat
from apps.providers.adapters.openai import build_message
from apps.providers.client import PreparedCall, prepare_call
from apps.providers.errors import (
    ProviderFailure,
    ProviderKeyRefused,
    ProviderRefused,
    ResponseTooLarge,
)

log = logging.getLogger(__name__)

LEASE_SECONDS = 20.0
"""A call whose worker does not extend its lease is made again."""
MAX_ATTEMPTS = 6
RETRY_SECONDS = (1.0, 3.0, 10.0, 30.0, 60.0)
"""Delays before the retries of a call that the provider may answer later."""
RETENTION = timedelta(days=1)
DELETE_BATCH_SIZE = 1000
_FINAL = (ProviderRefused, ProviderKeyRefused, ResponseTooLarge)


@dataclass(frozen=True, slots=True)
class ClaimedCall:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    """The fencing token: the result of a stale attempt is discarded."""
    organization_id: UUID
    record: CallRecord | None
    call: PreparedCall | None = field(repr=False)
    error: str = ""
    """Why the call cannot be made."""


def _all_calls() -> ModelCallQuerySet:
    return ModelCall.objects.across_workspaces(reason="a worker makes the calls of all workspaces")


def has_due() -> bool:
    return _all_calls().due(timezone.now()).exists()


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedCall]:
    """Lease due calls of organizations that are not excluded, and prepare their requests."""
    now = timezone.now()
    with transaction.atomic():
        rows = _all_calls().due(now).exclude(workspace__organization_id__in=excluded)
        rows = rows.select_related("workspace").order_by("due_at")
        claimed = list(rows.select_for_update(skip_locked=True, of=("self",))[:limit])
        for row in claimed:
            row.status, row.attempt = CallStatus.RUNNING, row.attempt + 1
            row.due_at = now + timedelta(seconds=LEASE_SECONDS)
        _all_calls().bulk_update(claimed, ["status", "attempt", "due_at"])
    return _prepare(claimed)


def _prepare(rows: Sequence[ModelCall]) -> list[ClaimedCall]:
    jobs = ExperimentJob.objects.across_workspaces(reason="the jobs of these calls")
    by_id = {job.pk: job for job in jobs.filter(pk__in={row.job_id for row in rows})}
    return [_prepare_call(row, by_id.get(row.job_id)) for row in rows]


def _prepare_call(row: ModelCall, job: ExperimentJob | None) -> ClaimedCall:
    organization_id = row.workspace.organization_id
    if job is None:
        return ClaimedCall(row.pk, row.attempt, organization_id, None, None, "The job is gone.")
    if row.attempt > MAX_ATTEMPTS:
        reason = f"{MAX_ATTEMPTS} attempts were interrupted."
        return ClaimedCall(row.pk, row.attempt, organization_id, None, None, reason)
    try:
        setting = setting_of(job)
        chat = build_chat(setting, row.variables)
        call = prepare_call(
            workspace_id=row.workspace_id, organization_id=organization_id, chat=chat
        )
    except AppError as error:
        return ClaimedCall(row.pk, row.attempt, organization_id, None, None, error.detail)
    except Exception:
        # The other calls that were claimed belong to other organizations, too.
        log.exception("The call %s could not be prepared.", row.pk)
        reason = "The call could not be prepared."
        return ClaimedCall(row.pk, row.attempt, organization_id, None, None, reason)
    record = CallRecord(
        workspace_id=row.workspace_id,
        setting=setting,
        chat=chat,
        started_at=timezone.now(),
        letter=letter_of(job),
        run_id=row.pk,
        project_id=job.experiment_id,
        parent=(row.step_id, row.dotted_order),
    )
    return ClaimedCall(row.pk, row.attempt, organization_id, record, call)


def extend(attempts: dict[UUID, int]) -> set[UUID]:
    """Extend the leases of the attempts; return the ids that this process still holds."""
    due_at = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    held = Q(pk__in=[])
    for call_id, attempt in attempts.items():
        held |= Q(pk=call_id, attempt=attempt, status=CallStatus.RUNNING)
    with transaction.atomic():
        rows = _all_calls().filter(held).order_by("pk")
        ids = set(rows.select_for_update().values_list("pk", flat=True))
        _all_calls().filter(pk__in=ids).update(due_at=due_at)
    return ids


def retry_at(attempt: int, error: AppError) -> datetime | None:
    """When the provider may be asked again after this attempt; None if the failure is final."""
    is_transient = isinstance(error, ProviderFailure) and not isinstance(error, _FINAL)
    if not is_transient or attempt > len(RETRY_SECONDS):
        return None
    assert isinstance(error, ProviderFailure)  # noqa: S101
    delay = max(RETRY_SECONDS[attempt - 1], error.retry_after or 0.0)
    return timezone.now() + timedelta(seconds=delay)


@transaction.atomic
def postpone(claimed: ClaimedCall, due_at: datetime) -> None:
    """Make the call again at this time."""
    _held(claimed).update(status=CallStatus.PENDING, due_at=due_at)


@transaction.atomic
def record_end(claimed: ClaimedCall, result: ModelCallResult) -> bool:
    """Record the end with its run; return False for an attempt that lost its lease."""
    row = _held(claimed).select_for_update().first()
    if row is None:
        return False
    row.status = CallStatus.SUCCEEDED if result.error is None else CallStatus.FAILED
    row.error, row.ended_at = result.error or "", result.ended_at
    record = claimed.record
    if result.message is not None and record is not None:
        row.outputs = build_outputs(result, has_schema=record.chat.response_schema is not None)
        row.cost = call_records.compute_cost(
            row.workspace_id, record.chat.model, result.usage, record.started_at
        )
    row.save(update_fields=["status", "error", "ended_at", "outputs", "cost"])
    if record is not None:
        _store(row, record, result)
    return True


def _store(row: ModelCall, record: CallRecord, result: ModelCallResult) -> None:
    """Store the call's run. The result of the row does not depend on it."""
    operations = [call_records.build_start(record), call_records.build_end(record, result)]
    try:
        with transaction.atomic():
            call_records.store(row.workspace_id, operations)
    except AppError as error:
        row.error = row.error or f"The run of the call was refused: {error.detail}"
        row.save(update_fields=["error"])


def build_outputs(result: ModelCallResult, *, has_schema: bool) -> dict[str, Any]:
    """The outputs of a row: the reply as text, or as JSON with a response schema."""
    assert result.message is not None  # noqa: S101
    output: Any = result.message.text
    if has_schema:
        with suppress(ValueError):
            parsed = loads(storable(result.message.text.encode()))
            output = result.message.text if is_too_deep(parsed) else parsed
    outputs = {"output": output, "message": build_message(result.message)}
    if result.usage is not None:
        outputs["finish_reason"] = result.finish_reason
    return outputs


def _held(claimed: ClaimedCall) -> ModelCallQuerySet:
    return _all_calls().filter(pk=claimed.id, attempt=claimed.attempt, status=CallStatus.RUNNING)


def delete_old() -> int:
    """Delete the calls that ended a day ago; their runs stay."""
    old = _all_calls().filter(ended_at__lt=timezone.now() - RETENTION)
    deleted = 0
    while ids := list(old.values_list("pk", flat=True)[:DELETE_BATCH_SIZE]):
        deleted += _all_calls().filter(pk__in=ids).delete()[0]
    return deleted
