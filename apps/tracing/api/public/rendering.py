"""JSON of runs and feedback behind a public link: content, without workspace internals.

Public fields are an allowlist, so a new field stays private until it is added here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from apps.feedback.api.rendering import feedback_json
from apps.feedback.models import Feedback
from apps.feedback.services import score_stats
from apps.trace_store import Payload, RunDetail
from apps.tracing.api.related_fields import RelatedFields
from apps.tracing.api.v1.rendering import run_json
from apps.tracing.api.v2.rendering import FIELDS
from apps.tracing.services.sharing import SharedContent

PUBLIC_FIELDS = frozenset(
    """
    id name run_type start_time end_time status trace_id dotted_order parent_run_id parent_run_ids
    child_run_ids direct_child_run_ids tags thread_id inputs_preview outputs_preview error_preview
    first_token_time prompt_tokens completion_tokens total_tokens prompt_token_details
    completion_token_details estimated_tokens prompt_cost completion_cost total_cost
    prompt_cost_details completion_cost_details inputs outputs error extra events
    serialized execution_order
    """.split()  # noqa: SIM905  (thirty quoted names are harder to read)
)
PRIVATE_FIELDS = frozenset(
    """
    session_id app_path price_model_id reference_example_id reference_dataset_id in_dataset
    last_queued_at share_token trace_tier inserted_at manifest_id inputs_s3_urls outputs_s3_urls
    """.split()  # noqa: SIM905  (as above)
)
"""Internal fields (location, retention, price model); null here because clients expect the keys."""

PUBLIC_V2_FIELDS = frozenset(FIELDS) - {
    "PROJECT_ID",
    "APP_PATH",
    "SHARE_URL",
    "IS_IN_DATASET",
    "REFERENCE_EXAMPLE_ID",
    "REFERENCE_DATASET_ID",
    "ATTACHMENTS",
    "FEEDBACK_STATS",
}
_PUBLIC_FEEDBACK_FIELDS = frozenset(
    """
    id created_at modified_at start_time run_id trace_id key score value comment correction
    feedback_thread_id is_root error
    """.split()  # noqa: SIM905  (as above)
)


def shared_runs_json(
    shared: SharedContent, runs: Sequence[RunDetail], payloads: Collection[Payload]
) -> list[dict[str, Any]]:
    feedback_stats = _feedback_stats(shared, runs)
    results = []
    for run in runs:
        all_fields = run_json(run, payloads)
        fields: dict[str, Any] = {
            name: value for name, value in all_fields.items() if name in PUBLIC_FIELDS
        }
        fields |= dict.fromkeys(sorted(PRIVATE_FIELDS))
        fields["s3_urls"] = {
            f"attachment.{attachment.name}": {
                "presigned_url": _attachment_url(shared, run, attachment.name),
                "mime_type": attachment.mime_type,
            }
            for attachment in run.row.attachments
        }
        fields["feedback_stats"] = feedback_stats.get(run.row.id, {})
        results.append(fields)
    return results


def shared_runs_v2_json(
    shared: SharedContent, runs: Sequence[RunDetail], selected: Collection[str]
) -> list[dict[str, Any]]:
    names = ["ID", *(name for name in FIELDS if name in selected and name != "ID")]
    feedback_stats = _feedback_stats(shared, runs) if "FEEDBACK_STATS" in names else {}
    results = []
    for run in runs:
        fields = {
            name.lower(): FIELDS[name](run, RelatedFields()) if name in PUBLIC_V2_FIELDS else None
            for name in names
        }
        if "attachments" in fields:
            fields["attachments"] = {
                attachment.name: _attachment_url(shared, run, attachment.name)
                for attachment in run.row.attachments
            }
        if "feedback_stats" in fields:
            fields["feedback_stats"] = feedback_stats.get(run.row.id, {})
        results.append(fields)
    return results


def shared_feedback_json(feedback: Feedback) -> dict[str, Any]:
    """Return the feedback without its author and without references to other traces."""
    fields = {
        name: value
        for name, value in feedback_json(feedback).items()
        if name in _PUBLIC_FEEDBACK_FIELDS
    }
    return fields | {"feedback_source": {"type": feedback.source_type}, "session_id": None}


def _feedback_stats(shared: SharedContent, runs: Sequence[RunDetail]) -> Mapping[UUID, Any]:
    return score_stats.by_run(shared.share.workspace_id, [run.row.id for run in runs])


def _attachment_url(shared: SharedContent, run: RunDetail, name: str) -> str:
    """Return a URL below the share link: it expires with the link and hides the storage path."""
    path = reverse("public-attachment", args=[shared.share.token, run.row.id, name])
    return f"{settings.BASE_URL}{path}"
