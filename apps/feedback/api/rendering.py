"""Renders feedback as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from apps.feedback.models import Feedback, FeedbackConfig, FeedbackFormula
from apps.organizations.models import User


def feedback_json(feedback: Feedback, names: Mapping[UUID, str] | None = None) -> dict[str, Any]:
    user_name = (names or {}).get(feedback.user_id) if feedback.user_id is not None else None
    return {
        "id": feedback.pk,
        "created_at": feedback.created_at,
        "modified_at": feedback.modified_at,
        "start_time": feedback.start_time,
        "run_id": feedback.run_id,
        "trace_id": feedback.trace_id,
        "session_id": feedback.project_id,
        "key": feedback.key,
        "score": feedback.score,
        "value": feedback.value,
        "comment": feedback.comment,
        "correction": feedback.correction,
        "feedback_source": {
            "type": feedback.source_type,
            "metadata": feedback.source.get("metadata"),
            "user_id": feedback.user_id,
            "user_name": user_name,
            "ls_user_id": feedback.user_id,
        },
        "feedback_group_id": feedback.feedback_group_id,
        "comparative_experiment_id": feedback.comparative_experiment_id,
        "feedback_thread_id": feedback.thread_key if feedback.is_on_thread else None,
        "is_root": feedback.is_root,
        "error": feedback.is_error,
        "extra": feedback.extra,
    }


def user_names(page: list[Feedback]) -> dict[UUID, str]:
    """Return the display names of the users who gave the feedback, with one query."""
    ids = {item.user_id for item in page if item.user_id is not None}
    users = User.objects.filter(pk__in=ids) if ids else ()
    return {user.pk: user.display_name for user in users}


def config_json(config: FeedbackConfig) -> dict[str, Any]:
    return {
        "id": config.pk,
        "feedback_key": config.key,
        "feedback_config": config.config,
        "tenant_id": config.workspace_id,
        "modified_at": config.modified_at,
        "is_lower_score_better": bool(config.is_lower_score_better),
        "is_enforced": config.is_enforced,
        "is_first": True,
        "is_deleted": False,
    }


def formula_json(formula: FeedbackFormula) -> dict[str, Any]:
    return {
        "id": formula.pk,
        "dataset_id": formula.dataset_id,
        "session_id": formula.project_id,
        "feedback_key": formula.key,
        "aggregation_type": formula.aggregation,
        "formula_parts": formula.parts,
        "created_at": formula.created_at,
        "modified_at": formula.modified_at,
    }
