"""Create, change and delete feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core import timestamps
from apps.core.errors import AppError
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.feedback import errors
from apps.feedback.models import Feedback, FeedbackConfig
from apps.feedback.projects import existing_projects, project_at_address
from apps.feedback.services import attach_to_runs, configs, formulas
from apps.feedback.services.upsert import upsert_feedback
from apps.feedback.wire import WireFeedback

MAX_LABEL_LENGTH = 100
MAX_SOURCE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class RejectedFeedback:
    """A feedback that is not stored, and the error that it would raise alone."""

    feedback_id: UUID | None
    error: AppError

    @property
    def detail(self) -> str:
        return self.error.detail

    @property
    def reason(self) -> str:
        """A stable code for the ingest log."""
        return str(getattr(self.error, "reason", self.error.code))


def store_feedback(
    workspace_id: UUID, items: Sequence[WireFeedback], *, user_id: UUID | None = None
) -> list[RejectedFeedback]:
    """Store feedback of a request with runs; return the rejected items.

    An existing id is replaced. The runs may not exist yet: `attach_to_runs` looks them up later.
    """
    if not items:
        return []
    rejected: list[RejectedFeedback] = []
    rows: list[Feedback] = []
    projects = existing_projects(
        workspace_id, {item.session_id for item in items if item.session_id is not None}
    )
    by_address = {
        address: project_at_address(workspace_id, address)
        for address in {item.address for item in items if item.address is not None}
    }
    rules = _ConfigRules(workspace_id, items)
    now = datetime.now(UTC)
    for item in items:
        item.id = item.id or uuid7()
        try:
            if item.address is not None:
                item.session_id = by_address[item.address]
                if item.session_id is None:
                    raise errors.ProjectNotFound("No project has this address.")
            elif item.session_id is not None and item.session_id not in projects:
                raise errors.ProjectNotFound
            rules.apply(item)
            rows.append(_row(workspace_id, item, user_id, now))
        except AppError as error:
            rejected.append(RejectedFeedback(item.id, error))
    rules.save()
    written = upsert_feedback(workspace_id, rows)
    taken = {row.pk for row in rows} - written
    rejected += [
        RejectedFeedback(item.id, errors.FeedbackIdTaken()) for item in items if item.id in taken
    ]
    on_projects: set[formulas.Target] = {
        (row.project_id, None) for row in rows if row.run_id is None and row.project_id is not None
    }
    if on_projects:
        formulas.recompute(workspace_id, on_projects, {row.key for row in rows})
    return rejected


@transaction.atomic
def create_feedback(
    workspace_id: UUID, feedback: WireFeedback, *, user_id: UUID | None
) -> Feedback:
    """Store one feedback and return it, attached to its run if that exists."""
    rejected = store_feedback(workspace_id, [feedback], user_id=user_id)
    if rejected:
        raise rejected[0].error
    if feedback.run_id is not None:
        attach_to_runs.attach(workspace_id, [feedback.run_id])
    return get_or_404(Feedback.objects.for_workspace(workspace_id), pk=feedback.id)


@transaction.atomic
def change_feedback(feedback: Feedback, changes: Mapping[str, Any]) -> Feedback:
    """Set the given fields and recompute formulas that depend on the feedback."""
    if feedback.formula_id is not None:
        raise errors.FeedbackComputed
    rows = Feedback.objects.for_workspace(feedback.workspace_id).select_for_update(no_key=True)
    feedback = get_or_404(rows, pk=feedback.pk)
    if changes.keys() & {"score", "value", "feedback_config"}:
        _rescore(feedback, changes)
    for name in ("comment", "correction"):
        if name in changes:
            setattr(feedback, name, changes[name])
    feedback.save()
    _recompute_after(feedback)
    return feedback


def _rescore(feedback: Feedback, changes: Mapping[str, Any]) -> None:
    """Set score and value; for a category, one of them implies the other."""
    result = WireFeedback(
        key=feedback.key,
        score=changes.get("score"),
        value=changes.get("value"),
        feedback_config=changes.get("feedback_config"),
    )
    rules = _ConfigRules(feedback.workspace_id, [result])
    rules.apply(result)
    rules.save()
    if "score" in changes or result.score is not None:
        feedback.score = _score(result.score)
    if "value" in changes or result.value is not None:
        feedback.value, feedback.label = result.value, _label(result.value)


@transaction.atomic
def delete_feedback(feedback: Feedback) -> None:
    if feedback.formula_id is not None:
        raise errors.FeedbackComputed
    Feedback.objects.for_workspace(feedback.workspace_id).filter(pk=feedback.pk).delete()
    _recompute_after(feedback)


def _recompute_after(feedback: Feedback) -> None:
    if feedback.project_id is not None:
        formulas.recompute(
            feedback.workspace_id, {(feedback.project_id, feedback.run_id)}, {feedback.key}
        )


class _ConfigRules:
    """The configs of the keys of a request, and the configs that the request adds."""

    def __init__(self, workspace_id: UUID, items: Sequence[WireFeedback]) -> None:
        self.workspace_id = workspace_id
        keys = {item.key for item in items}
        self.known = configs.known_configs(workspace_id, keys)
        self.added: dict[str, FeedbackConfig] = {}

    def apply(self, feedback: WireFeedback) -> None:
        """Check the feedback against the config of its key, and complete score and value."""
        stated = None
        if feedback.feedback_config is not None:
            stated = configs.parse_config(feedback.feedback_config)
        score = _score(feedback.score)
        known = self.known.get(feedback.key)
        if known is None:
            known = FeedbackConfig(
                workspace_id=self.workspace_id,
                key=feedback.key,
                config=stated or configs.infer_config(score, feedback.value),
                is_inferred=stated is None,
            )
            self.known[feedback.key] = self.added[feedback.key] = known
        elif stated is not None and known.is_inferred:
            known.config, known.is_inferred = stated, False
            self.added[feedback.key] = known
        elif stated is not None and stated != known.config:
            raise errors.FeedbackConfigContradicted(
                f"The stated config contradicts the config of {feedback.key!r:.100}."
            )
        if not configs.allows(known, score, feedback.value):
            raise errors.FeedbackOutOfBounds(
                f"The config of {feedback.key!r:.100} does not allow this score or value."
            )
        feedback.score, feedback.value = configs.complete_category(
            known.config, score, feedback.value
        )

    def save(self) -> None:
        if self.added:
            configs.save_from_feedback(self.workspace_id, list(self.added.values()))


def _row(
    workspace_id: UUID, feedback: WireFeedback, user_id: UUID | None, now: datetime
) -> Feedback:
    source = feedback.feedback_source or {"type": "api"}
    created_at = _parse_timestamp(feedback.created_at, "created_at")
    return Feedback(
        id=feedback.id,
        workspace_id=workspace_id,
        created_at=min(created_at or now, now),
        project_id=feedback.session_id,
        run_id=feedback.run_id,
        trace_id=feedback.trace_id,
        is_root=None
        if feedback.trace_id is None or feedback.run_id is None
        else feedback.run_id == feedback.trace_id,
        start_time=_parse_timestamp(feedback.start_time, "start_time") if feedback.run_id else None,
        thread_key=feedback.feedback_thread_id,
        is_on_thread=feedback.feedback_thread_id is not None,
        is_pending=feedback.run_id is not None,
        keeps_trace=feedback.extend_trace_retention is not False,
        key=feedback.key,
        score=_score(feedback.score),
        value=feedback.value,
        label=_label(feedback.value),
        comment=feedback.comment,
        correction=feedback.correction,
        source=source,
        source_type=str(source.get("type") or "api")[:MAX_SOURCE_LENGTH],
        user_id=user_id,
        extra=feedback.extra,
        feedback_group_id=feedback.feedback_group_id,
        comparative_experiment_id=feedback.comparative_experiment_id,
        is_error=bool(feedback.error),
    )


def _parse_timestamp(value: str | float | None, field: str) -> datetime | None:
    if value is None:
        return None
    try:
        return timestamps.parse_timestamp(value, field)
    except ValueError as error:
        raise errors.InvalidFeedback(str(error), "bad_time") from None


def _score(score: float | bool | None) -> float | None:  # noqa: FBT001  (the wire's own type)
    return None if score is None else float(score)


def _label(value: Any) -> str | None:
    """The value as counted in statistics."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        text = value if isinstance(value, str) else f"{value:g}"
        return text if 0 < len(text) <= MAX_LABEL_LENGTH else None
    return None
