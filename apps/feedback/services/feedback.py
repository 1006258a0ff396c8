"""Create, change and delete feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
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
from apps.feedback.wire import WireFeedback, check_readable
from apps.trace_store.errors import ProjectNotFound
from apps.usage import storage
from apps.usage.models import StorageKind

MAX_LABEL_LENGTH = 100
MAX_SOURCE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class RejectedFeedback:
    """A feedback item that was not stored, with the error that rejected it."""

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
    """Store the feedback of one request; return the rejected items.

    Feedback with an existing id is replaced. The runs need not exist yet: `attach_to_runs` looks
    them up later.
    """
    if not items:
        return []
    try:
        storage.check(workspace_id, StorageKind.FEEDBACK)
    except storage.StorageFull as error:
        return [RejectedFeedback(item.id or uuid7(), error) for item in items]
    rejected: list[RejectedFeedback] = []
    rows: list[Feedback] = []
    projects = existing_projects(
        workspace_id, {item.session_id for item in items if item.session_id is not None}
    )
    project_by_address = {
        address: project_at_address(workspace_id, address)
        for address in {item.address for item in items if item.address is not None}
    }
    rules = _ConfigRules(workspace_id, items)
    now = datetime.now(UTC)
    for item in items:
        item.id = item.id or uuid7()
        try:
            if item.address is not None:
                item.session_id = project_by_address[item.address]
                if item.session_id is None:
                    raise ProjectNotFound("No project has this `address`.")
            elif item.session_id is not None and item.session_id not in projects:
                raise ProjectNotFound("No project has this `session_id`.")
            check_readable(msgspec.structs.asdict(item))
            rules.apply(item)
            rows.append(_build_row(workspace_id, item, user_id, now))
        except AppError as error:
            rejected.append(RejectedFeedback(item.id, error))
    rules.save()
    written = upsert_feedback(workspace_id, rows)
    taken_ids = {row.pk for row in rows} - written
    rejected += [
        RejectedFeedback(item.id, errors.FeedbackIdTaken())
        for item in items
        if item.id in taken_ids
    ]
    project_targets: set[formulas.Target] = {
        (row.project_id, None) for row in rows if row.run_id is None and row.project_id is not None
    }
    if project_targets:
        formulas.recompute(workspace_id, project_targets, {row.key for row in rows})
    return rejected


@transaction.atomic
def create_feedback(
    workspace_id: UUID, feedback: WireFeedback, *, user_id: UUID | None
) -> Feedback:
    """Store one feedback item and return it, attached to its run if the run exists."""
    rejected = store_feedback(workspace_id, [feedback], user_id=user_id)
    if rejected:
        raise rejected[0].error
    if feedback.run_id is not None:
        attach_to_runs.attach(workspace_id, [feedback.run_id])
    return get_or_404(Feedback.objects.for_workspace(workspace_id), pk=feedback.id)


@transaction.atomic
def change_feedback(feedback: Feedback, changes: Mapping[str, Any]) -> Feedback:
    """Set the changed fields and recompute the formulas that depend on the feedback."""
    if feedback.formula_id is not None:
        raise errors.FeedbackComputed
    check_readable(changes)
    if changes.keys() & {"value", "comment", "correction"}:
        storage.check(feedback.workspace_id, StorageKind.FEEDBACK)
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
    """Set score and value; the category of one completes the other."""
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
        feedback.score = _to_float(result.score)
    if "value" in changes or result.value is not None:
        feedback.value, feedback.label = result.value, _to_label(result.value)


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
    """The configs of the keys in a request, and the configs that the request adds."""

    def __init__(self, workspace_id: UUID, items: Sequence[WireFeedback]) -> None:
        self.workspace_id = workspace_id
        keys = {item.key for item in items}
        self.configs_by_key = configs.configs_by_key(workspace_id, keys)
        self.added: dict[str, FeedbackConfig] = {}

    def apply(self, feedback: WireFeedback) -> None:
        """Check the feedback against the config of its key; complete its score or value."""
        config = None
        if feedback.feedback_config is not None:
            config = configs.parse_config(feedback.feedback_config)
        score = _to_float(feedback.score)
        current = self.configs_by_key.get(feedback.key)
        if current is None:
            current = FeedbackConfig(
                workspace_id=self.workspace_id,
                key=feedback.key,
                config=config or configs.infer_config(score, feedback.value),
                is_inferred=config is None,
            )
            self.configs_by_key[feedback.key] = self.added[feedback.key] = current
        elif config is not None and current.is_inferred:
            current.config, current.is_inferred = config, False
            self.added[feedback.key] = current
        elif config is not None and config != current.config:
            raise errors.FeedbackConfigContradicted(
                f"`feedback_config` differs from the existing config of {feedback.key!r:.100}."
            )
        if not configs.is_allowed(current, score, feedback.value):
            raise errors.FeedbackOutOfBounds(
                f"The config of {feedback.key!r:.100} does not allow this score or value."
            )
        feedback.score, feedback.value = configs.complete_category(
            current.config, score, feedback.value
        )

    def save(self) -> None:
        if self.added:
            configs.save_from_feedback(self.workspace_id, list(self.added.values()))


def _build_row(
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
        score=_to_float(feedback.score),
        value=feedback.value,
        label=_to_label(feedback.value),
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


def _to_float(score: float | bool | None) -> float | None:  # noqa: FBT001  (the wire's own type)
    return None if score is None else float(score)


def _to_label(value: Any) -> str | None:
    """Return the value as statistics count it, or None if they do not."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        text = value if isinstance(value, str) else f"{value:g}"
        return text if 0 < len(text) <= MAX_LABEL_LENGTH else None
    return None
