"""Runs and projects as the wire has them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from apps.tracing.api.downloads import signed_url
from apps.tracing.models import Project
from apps.tracing.store import Payload, ProjectStats, RunDetail, RunRow

HEAVY = {str(payload): payload for payload in Payload}
"""Fields that are left out unless they are selected; all others are always there."""


def run_json(run: RunDetail, selected: Collection[Payload]) -> dict[str, Any]:
    row = run.row
    usage = row.usage
    details = usage.details or {}
    return {
        "id": row.id,
        "name": row.name,
        "run_type": row.run_type,
        "start_time": row.start_time,
        "end_time": row.end_time,
        "status": row.status,
        "trace_id": row.trace_id,
        "dotted_order": row.dotted_order,
        "parent_run_id": row.parent_run_id,
        "parent_run_ids": row.parent_run_ids,
        "child_run_ids": None,
        "direct_child_run_ids": None,
        "session_id": row.project_id,
        "app_path": app_path(row),
        "tags": row.tags,
        "thread_id": row.thread_key,
        "inputs_preview": row.inputs_preview,
        "outputs_preview": row.outputs_preview,
        "error_preview": row.error_preview,
        "first_token_time": row.first_token_time,
        "prompt_tokens": usage.prompt_tokens or 0,
        "completion_tokens": usage.completion_tokens or 0,
        "total_tokens": usage.total_tokens or 0,
        "prompt_token_details": details.get("prompt_token_details"),
        "completion_token_details": details.get("completion_token_details"),
        "prompt_cost": money(usage.prompt_cost),
        "completion_cost": money(usage.completion_cost),
        "total_cost": money(usage.total_cost),
        "prompt_cost_details": details.get("prompt_cost_details"),
        "completion_cost_details": details.get("completion_cost_details"),
        "price_model_id": None,
        "reference_example_id": row.reference_example_id,
        "reference_dataset_id": None,
        "in_dataset": False,
        "last_queued_at": None,
        "share_token": None,
        "feedback_stats": {},
        "s3_urls": {
            f"attachment.{one.name}": {
                "presigned_url": signed_url(one),
                "s3_url": one.path,
                "mime_type": one.mime_type,
            }
            for one in row.attachments
        },
        "inputs_s3_urls": None,
        "outputs_s3_urls": None,
        "manifest_id": None,
        "execution_order": 1,
        "trace_tier": None,
        "inserted_at": row.received_at,
        **{str(payload): run.json(payload) for payload in selected},
    }


def app_path(row: RunRow) -> str:
    start = quote(row.start_time.astimezone(UTC).isoformat())
    return (
        f"/o/{row.workspace_id}/projects/p/{row.project_id}/r/{row.id}"
        f"?trace_id={row.trace_id}&start_time={start}"
    )


def money(amount: Any) -> str | None:
    """An amount as text, so that no reader rounds it, and without an exponent."""
    return None if amount is None else format(amount.normalize(), "f")


def project_json(project: Project, stats: ProjectStats) -> dict[str, Any]:
    return {
        "id": project.pk,
        "tenant_id": project.workspace_id,
        "name": project.name,
        "description": project.description,
        "start_time": project.start_time,
        "end_time": project.end_time,
        "extra": project.extra,
        "default_dataset_id": project.default_dataset_id,
        "reference_dataset_id": project.reference_dataset_id,
        "trace_tier": project.trace_tier,
        "run_count": stats.run_count,
        "last_run_start_time": stats.last_run_start_time,
        "last_run_start_time_live": stats.last_run_start_time,
    }


def as_utc(moment: datetime) -> datetime:
    """A time of the wire; without a zone it is UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def ids(values: Collection[Any]) -> list[UUID]:
    return [value if isinstance(value, UUID) else UUID(str(value)) for value in values]
