"""Renders feedback as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from apps.feedback.models import Feedback, FeedbackConfig, FeedbackFormula
from apps.organizations.models import User


def feedback_json(one: Feedback, names: Mapping[UUID, str] | None = None) -> dict[str, Any]:
    user_name = (names or {}).get(one.user_id) if one.user_id is not None else None
    return {
        "id": one.pk,
        "created_at": one.created_at,
        "modified_at": one.modified_at,
        "start_time": one.start_time,
        "run_id": one.run_id,
        "trace_id": one.trace_id,
        "session_id": one.project_id,
        "key": one.key,
        "score": one.score,
        "value": one.value,
        "comment": one.comment,
        "correction": one.correction,
        "feedback_source": {
            "type": one.source_type,
            "metadata": one.source.get("metadata"),
            "user_id": one.user_id,
            "user_name": user_name,
            "ls_user_id": one.user_id,
        },
        "feedback_group_id": one.feedback_group_id,
        "comparative_experiment_id": one.comparative_experiment_id,
        "feedback_thread_id": one.thread_key if one.is_on_thread else None,
        "is_root": one.is_root,
        "error": one.is_error,
        "extra": one.extra,
    }


def user_names(page: list[Feedback]) -> dict[UUID, str]:
    """The names of the users of the feedback, in one query."""
    ids = {one.user_id for one in page if one.user_id is not None}
    users = User.objects.filter(pk__in=ids) if ids else ()
    return {user.pk: user.display_name for user in users}


def config_json(one: FeedbackConfig) -> dict[str, Any]:
    return {
        "id": one.pk,
        "feedback_key": one.key,
        "feedback_config": one.config,
        "tenant_id": one.workspace_id,
        "modified_at": one.modified_at,
        "is_lower_score_better": bool(one.is_lower_score_better),
        "is_enforced": one.is_enforced,
        "is_first": True,
        "is_deleted": False,
    }


def formula_json(one: FeedbackFormula) -> dict[str, Any]:
    return {
        "id": one.pk,
        "dataset_id": one.dataset_id,
        "session_id": one.project_id,
        "feedback_key": one.key,
        "aggregation_type": one.aggregation,
        "formula_parts": one.parts,
        "created_at": one.created_at,
        "modified_at": one.modified_at,
    }
