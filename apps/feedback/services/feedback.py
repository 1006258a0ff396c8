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
        workspace_id, {one.session_id for one in items if one.session_id is not None}
    )
    by_address = {
        address: project_at_address(workspace_id, address)
        for address in {one.address for one in items if one.address is not None}
    }
    rules = _ConfigRules(workspace_id, items)
    now = datetime.now(UTC)
    for one in items:
        one.id = one.id or uuid7()
        try:
            if one.address is not None:
                one.session_id = by_address[one.address]
                if one.session_id is None:
                    raise errors.ProjectNotFound("No project has this address.")
            elif one.session_id is not None and one.session_id not in projects:
                raise errors.ProjectNotFound
            rules.apply(one)
            rows.append(_row(workspace_id, one, user_id, now))
        except AppError as error:
            rejected.append(RejectedFeedback(one.id, error))
    rules.save()
    written = upsert_feedback(workspace_id, rows)
    taken = {row.pk for row in rows} - written
    rejected += [
        RejectedFeedback(one.id, errors.FeedbackIdTaken()) for one in items if one.id in taken
    ]
    on_projects: set[formulas.Target] = {
        (row.project_id, None) for row in rows if row.run_id is None and row.project_id is not None
    }
    if on_projects:
        formulas.recompute(workspace_id, on_projects, {row.key for row in rows})
    return rejected


@transaction.atomic
def create_feedback(workspace_id: UUID, one: WireFeedback, *, user_id: UUID | None) -> Feedback:
    """Store one feedback and return it, attached to its run if that exists."""
    rejected = store_feedback(workspace_id, [one], user_id=user_id)
    if rejected:
        raise rejected[0].error
    if one.run_id is not None:
        attach_to_runs.attach(workspace_id, [one.run_id])
    return get_or_404(Feedback.objects.for_workspace(workspace_id), pk=one.id)


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
    one = WireFeedback(
        key=feedback.key,
        score=changes.get("score"),
        value=changes.get("value"),
        feedback_config=changes.get("feedback_config"),
    )
    rules = _ConfigRules(feedback.workspace_id, [one])
    rules.apply(one)
    rules.save()
    if "score" in changes or one.score is not None:
        feedback.score = _score(one.score)
    if "value" in changes or one.value is not None:
        feedback.value, feedback.label = one.value, _label(one.value)


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
        keys = {one.key for one in items}
        self.known = configs.known_configs(workspace_id, keys)
        self.added: dict[str, FeedbackConfig] = {}

    def apply(self, one: WireFeedback) -> None:
        """Check the feedback against the config of its key, and complete score and value."""
        stated = None
        if one.feedback_config is not None:
            stated = configs.parse_config(one.feedback_config)
        score = _score(one.score)
        known = self.known.get(one.key)
        if known is None:
            known = FeedbackConfig(
                workspace_id=self.workspace_id,
                key=one.key,
                config=stated or configs.infer_config(score, one.value),
                is_inferred=stated is None,
            )
            self.known[one.key] = self.added[one.key] = known
        elif stated is not None and known.is_inferred:
            known.config, known.is_inferred = stated, False
            self.added[one.key] = known
        elif stated is not None and stated != known.config:
            raise errors.FeedbackConfigContradicted(
                f"The stated config contradicts the config of {one.key!r:.100}."
            )
        if not configs.allows(known, score, one.value):
            raise errors.FeedbackOutOfBounds(
                f"The config of {one.key!r:.100} does not allow this score or value."
            )
        one.score, one.value = configs.complete_category(known.config, score, one.value)

    def save(self) -> None:
        if self.added:
            configs.save_from_feedback(self.workspace_id, list(self.added.values()))


def _row(workspace_id: UUID, one: WireFeedback, user_id: UUID | None, now: datetime) -> Feedback:
    source = one.feedback_source or {"type": "api"}
    created_at = _parse_timestamp(one.created_at, "created_at")
    return Feedback(
        id=one.id,
        workspace_id=workspace_id,
        created_at=min(created_at or now, now),
        project_id=one.session_id,
        run_id=one.run_id,
        trace_id=one.trace_id,
        is_root=None if one.trace_id is None or one.run_id is None else one.run_id == one.trace_id,
        start_time=_parse_timestamp(one.start_time, "start_time") if one.run_id else None,
        thread_key=one.feedback_thread_id,
        is_on_thread=one.feedback_thread_id is not None,
        is_pending=one.run_id is not None,
        keeps_trace=one.extend_trace_retention is not False,
        key=one.key,
        score=_score(one.score),
        value=one.value,
        label=_label(one.value),
        comment=one.comment,
        correction=one.correction,
        source=source,
        source_type=str(source.get("type") or "api")[:MAX_SOURCE_LENGTH],
        user_id=user_id,
        extra=one.extra,
        feedback_group_id=one.feedback_group_id,
        comparative_experiment_id=one.comparative_experiment_id,
        is_error=bool(one.error),
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
