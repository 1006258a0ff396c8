"""JSON of runs and projects in the v1 API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from typing import Any
from urllib.parse import quote
from uuid import UUID

from apps.trace_store import Payload, ProjectStats, RunDetail, RunRow
from apps.trace_store.token_estimates import estimate_tokens
from apps.tracing import messages
from apps.tracing.api import related_fields
from apps.tracing.api.downloads import signed_url
from apps.tracing.api.related_fields import RelatedFields
from apps.tracing.messages import Message, part_json
from apps.tracing.models import Project
from apps.tracing.services.projects import experiment_progress
from apps.tracing.services.statistics import format_cost

PAYLOAD_FIELDS = {
    **{str(payload): payload for payload in Payload},
    **{f"{payload}_or_signed_url": payload for payload in Payload},
    "manifest": Payload.SERIALIZED,
}
"""Fields that are returned only if selected; all other fields are always returned."""
MESSAGES = "messages"


def payloads_for(select: Collection[str] | None) -> set[Payload]:
    """Return the payloads that these fields need; None selects all fields."""
    if select is None:
        return set(Payload)
    selected = {PAYLOAD_FIELDS[name] for name in select if name in PAYLOAD_FIELDS}
    return selected | ({Payload.INPUTS, Payload.OUTPUTS} if MESSAGES in select else set())


def runs_json(
    workspace_id: UUID, runs: Sequence[RunDetail], select: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Return the runs as JSON, with payload fields only if selected."""
    related = related_fields.load_related_fields(
        workspace_id,
        [run.row for run in runs],
        select or (),
        with_source_runs=select is None or "in_dataset" in select,
    )
    payloads = payloads_for(
        None if select is None else [name for name in select if name in PAYLOAD_FIELDS]
    )
    return [
        run_json(run, payloads, related)
        | ({MESSAGES: messages_json(run)} if MESSAGES in (select or ()) else {})
        | _queried_fields(run.row, related, select or ())
        for run in runs
    ]


def run_json(
    run: RunDetail, selected: Collection[Payload], related: RelatedFields | None = None
) -> dict[str, Any]:
    row = run.row
    usage = row.usage
    details = usage.details or {}
    related = related or RelatedFields()
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
        "estimated_tokens": _estimated_tokens(run, selected),
        "prompt_cost": format_cost(usage.prompt_cost),
        "completion_cost": format_cost(usage.completion_cost),
        "total_cost": format_cost(usage.total_cost),
        "prompt_cost_details": details.get("prompt_cost_details"),
        "completion_cost_details": details.get("completion_cost_details"),
        "price_model_id": row.price_model_id,
        "reference_example_id": row.reference_example_id,
        "reference_dataset_id": (
            related.datasets.get(row.project_id) if row.reference_example_id else None
        ),
        "in_dataset": row.id in related.in_dataset,
        "last_queued_at": None,
        "share_token": related.share_token(row),
        "feedback_stats": related.feedback.get(row.id, {}),
        "s3_urls": {
            f"attachment.{attachment.name}": {
                "presigned_url": signed_url(attachment),
                "s3_url": attachment.path,
                "mime_type": attachment.mime_type,
            }
            for attachment in row.attachments
        },
        "inputs_s3_urls": None,
        "outputs_s3_urls": None,
        "manifest_id": None,
        "execution_order": 1,
        "trace_tier": related.tier(row)[0],
        "inserted_at": row.received_at,
        **{str(payload): run.embedded(payload) for payload in selected},
    }


def _estimated_tokens(run: RunDetail, selected: Collection[Payload]) -> dict[str, int] | None:
    """Return the estimate for a model call without reported tokens, if its payloads are read."""
    if not {Payload.INPUTS, Payload.OUTPUTS} <= set(selected):
        return None
    estimate = estimate_tokens(run)
    return None if estimate is None else estimate._asdict()


def _queried_fields(row: RunRow, related: RelatedFields, select: Collection[str]) -> dict[str, Any]:
    """Return the selected fields that need an additional query."""
    result: dict[str, Any] = {}
    if "trace_upgrade" in select:
        result["trace_upgrade"] = related.tier(row)[1]
    if related.policy is not None:
        result["ttl_seconds"] = related.seconds(row)
    times = related.times.get(row.trace_id)
    if times is not None:
        result["trace_min_start_time"] = times.first_start_time
        result["trace_max_start_time"] = times.last_start_time
        result["trace_first_received_at"] = times.first_received_at
    return result


def app_path(row: RunRow) -> str:
    # Quoted here: a page has hundreds of runs, and only these two characters need it.
    start = row.start_time.astimezone(UTC).isoformat().replace(":", "%3A").replace("+", "%2B")
    path = run_path(row.workspace_id, row.project_id, row.id)
    return f"{path}?trace_id={row.trace_id}&start_time={start}"


def run_path(
    workspace_id: UUID,
    project_id: UUID,
    run_id: UUID,
    trace_id: UUID | None = None,
    start_time: str | None = None,
) -> str:
    """Return the path of the run's page."""
    data = {"trace_id": trace_id, "start_time": start_time}
    query = "&".join(f"{name}={quote(str(value))}" for name, value in data.items() if value)
    path = f"/o/{workspace_id}/projects/p/{project_id}/r/{run_id}"
    return f"{path}?{query}" if query else path


def project_json(
    project: Project,
    stats: ProjectStats,
    statistics: Mapping[str, Any] | None = None,
    test_run_number: int | None = None,
) -> dict[str, Any]:
    """Return the project with its counts, and with statistics if `statistics` are passed."""
    feedback = (statistics or {}).get("feedback_stats") or {}
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
        "longlived_ttl_days": project.long_days,
        "kicked_off_by": project.kicked_off_by,
        "run_count": stats.run_count,
        "last_run_start_time": stats.last_run_start_time,
        "test_run_number": test_run_number,
        "experiment_progress": experiment_progress(project, stats.trace_count, feedback),
        **(statistics or {}),
        "last_run_start_time_live": stats.last_run_start_time,
    }


def messages_json(run: RunDetail) -> list[dict[str, Any]]:
    """Return the input and output messages; empty if the payloads hold no messages."""
    parsed = [
        message
        for payload in (Payload.INPUTS, Payload.OUTPUTS)
        for message in messages.parse_messages(run.value(payload))
    ]
    return [_message_json(message) for message in parsed]


def _message_json(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "name": message.name or None,
        "content": [part_json(part) for part in message.parts],
        "tool_calls": [
            {"id": call.id or None, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id or None,
        "is_error": message.failed,
    }
