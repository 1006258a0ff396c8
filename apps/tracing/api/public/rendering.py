"""What a public link shows of a run and of feedback: its content, and nothing of the house.

Each field is named here, so that one which is new elsewhere stays inside until somebody decides.
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
from apps.tracing.api.related_fields import Beside
from apps.tracing.api.v1.rendering import run_json
from apps.tracing.api.v2.rendering import FIELDS
from apps.tracing.services.sharing import Shared

OPEN = frozenset(
    """
    id name run_type start_time end_time status trace_id dotted_order parent_run_id parent_run_ids
    child_run_ids direct_child_run_ids tags thread_id inputs_preview outputs_preview error_preview
    first_token_time prompt_tokens completion_tokens total_tokens prompt_token_details
    completion_token_details prompt_cost completion_cost total_cost prompt_cost_details
    completion_cost_details inputs outputs error extra events serialized execution_order
    """.split()  # noqa: SIM905  (thirty quoted names are harder to read)
)
INSIDE = frozenset(
    """
    session_id app_path price_model_id reference_example_id reference_dataset_id in_dataset
    last_queued_at share_token trace_tier inserted_at manifest_id inputs_s3_urls outputs_s3_urls
    """.split()  # noqa: SIM905  (as above)
)
"""Where the run lives, how long, and what it was measured with; null here, since clients look."""

OPEN_V2 = frozenset(FIELDS) - {
    "PROJECT_ID",
    "APP_PATH",
    "SHARE_URL",
    "IS_IN_DATASET",
    "REFERENCE_EXAMPLE_ID",
    "REFERENCE_DATASET_ID",
    "ATTACHMENTS",
    "FEEDBACK_STATS",
}
_OPEN_FEEDBACK = frozenset(
    """
    id created_at modified_at start_time run_id trace_id key score value comment correction
    feedback_thread_id is_root error
    """.split()  # noqa: SIM905  (as above)
)


def shared_runs_json(
    shared: Shared, runs: Sequence[RunDetail], payloads: Collection[Payload]
) -> list[dict[str, Any]]:
    score_stats = _stats(shared, runs)
    found = []
    for run in runs:
        known = run_json(run, payloads)
        shown: dict[str, Any] = {name: value for name, value in known.items() if name in OPEN}
        shown |= dict.fromkeys(sorted(INSIDE))
        shown["s3_urls"] = {
            f"attachment.{one.name}": {
                "presigned_url": _attachment_url(shared, run, one.name),
                "mime_type": one.mime_type,
            }
            for one in run.row.attachments
        }
        shown["feedback_stats"] = score_stats.get(run.row.id, {})
        found.append(shown)
    return found


def shared_runs_v2_json(
    shared: Shared, runs: Sequence[RunDetail], selected: Collection[str]
) -> list[dict[str, Any]]:
    names = ["ID", *(name for name in FIELDS if name in selected and name != "ID")]
    score_stats = _stats(shared, runs) if "FEEDBACK_STATS" in names else {}
    found = []
    for run in runs:
        shown = {
            name.lower(): FIELDS[name](run, Beside()) if name in OPEN_V2 else None for name in names
        }
        if "attachments" in shown:
            shown["attachments"] = {
                one.name: _attachment_url(shared, run, one.name) for one in run.row.attachments
            }
        if "feedback_stats" in shown:
            shown["feedback_stats"] = score_stats.get(run.row.id, {})
        found.append(shown)
    return found


def shared_feedback_json(one: Feedback) -> dict[str, Any]:
    """What was said, without who said it and in which other trace."""
    shown = {name: value for name, value in feedback_json(one).items() if name in _OPEN_FEEDBACK}
    return shown | {"feedback_source": {"type": one.source_type}, "session_id": None}


def _stats(shared: Shared, runs: Sequence[RunDetail]) -> Mapping[UUID, Any]:
    return score_stats.by_run(shared.share.workspace_id, [run.row.id for run in runs])


def _attachment_url(shared: Shared, run: RunDetail, name: str) -> str:
    """By the link itself, so that it ends with it and tells nothing of where the file lies."""
    path = reverse("public-attachment", args=[shared.share.token, run.row.id, name])
    return f"{settings.BASE_URL}{path}"
