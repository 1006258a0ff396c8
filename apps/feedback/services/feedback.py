"""Giving feedback, changing it and taking it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.errors import AppError
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.feedback import errors
from apps.feedback.models import Feedback, FeedbackConfig
from apps.feedback.services import attach_to_runs, configs, formulas
from apps.feedback.services.rows import write_rows
from apps.feedback.wire import WireFeedback
from apps.ingest.services import project_resolution
from apps.ingest.wire import Refusal, moment
from apps.tracing.models import Project

LABEL_LENGTH = 100
SOURCE_LENGTH = 100


class RefusedFeedback(Exception):
    """Why one feedback of several is not stored, as the error it would be alone."""

    def __init__(self, given: WireFeedback, error: Exception) -> None:
        super().__init__(str(error))
        self.given, self.error = given, error


def store_feedback(
    workspace_id: UUID, given: Sequence[WireFeedback], *, user_id: UUID | None = None
) -> list[RefusedFeedback]:
    """Store feedback that comes in the stream of runs; return what is refused, and why.

    What has an id that is there takes its place. Runs may come later: nobody looks for them here,
    which is the work of `feedback_attaching`.
    """
    if not given:
        return []
    refused: list[RefusedFeedback] = []
    rows: list[Feedback] = []
    projects = _known_projects(workspace_id, given)
    addressed = _addressed_projects(workspace_id, given)
    rules = _Rules(workspace_id, given)
    now = datetime.now(UTC)
    for one in given:
        one.id = one.id or uuid7()
        try:
            if one.address is not None:
                one.session_id = addressed.get(one.address)
                if one.session_id is None:
                    raise errors.ProjectNotFound("No project has this address.")
            elif one.session_id is not None and one.session_id not in projects:
                raise errors.ProjectNotFound
            rules.apply(one)
            rows.append(_row(workspace_id, one, user_id, now))
        except (AppError, Refusal) as error:
            refused.append(RefusedFeedback(one, error))
    rules.save()
    written = write_rows(workspace_id, rows)
    taken = {row.pk for row in rows} - written
    refused += [RefusedFeedback(o, errors.FeedbackIdTaken()) for o in given if o.id in taken]
    on_projects: set[formulas.Target] = {
        (row.project_id, None) for row in rows if row.run_id is None and row.project_id is not None
    }
    if on_projects:
        formulas.recompute(workspace_id, on_projects, {row.key for row in rows})
    return refused


@transaction.atomic
def give_feedback(workspace_id: UUID, one: WireFeedback, *, user_id: UUID | None) -> Feedback:
    """Store one feedback and return it, attached to its run where that is there."""
    refused = store_feedback(workspace_id, [one], user_id=user_id)
    if refused:
        raise refused[0].error
    if one.run_id is not None:
        attach_to_runs.attach(workspace_id, [one.run_id])
    return get_or_404(Feedback.objects.for_workspace(workspace_id), pk=one.id)


@transaction.atomic
def change_feedback(feedback: Feedback, changes: Mapping[str, Any]) -> Feedback:
    """Set what is given and nothing else; what is computed from it is computed again."""
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
    """Score and value as told; of a category that is told by half the other half follows."""
    one = WireFeedback(
        key=feedback.key,
        score=changes.get("score"),
        value=changes.get("value"),
        feedback_config=changes.get("feedback_config"),
    )
    rules = _Rules(feedback.workspace_id, [one])
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


def _known_projects(workspace_id: UUID, given: Sequence[WireFeedback]) -> set[UUID]:
    named = {one.session_id for one in given if one.session_id is not None}
    if not named:
        return set()
    projects = Project.objects.for_workspace(workspace_id).present().filter(pk__in=named)
    return set(projects.values_list("pk", flat=True))


def _addressed_projects(workspace_id: UUID, given: Sequence[WireFeedback]) -> dict[str, UUID]:
    """By address of an agent: feedback follows what is there, and makes no project."""
    found = {}
    for address in {one.address for one in given if one.address is not None}:
        if agent := project_resolution.agent_at(address):
            agent_id, environment = agent
            projects = Project.objects.for_workspace(workspace_id).present()
            at_address = projects.filter(agent_id=agent_id, agent_environment=environment)
            if (project_id := at_address.values_list("pk", flat=True).first()) is not None:
                found[address] = project_id
    return found


class _Rules:
    """The configs of the keys at hand: what they know, and what they learn."""

    def __init__(self, workspace_id: UUID, given: Sequence[WireFeedback]) -> None:
        self.workspace_id = workspace_id
        keys = {one.key for one in given}
        self.known = configs.known_configs(workspace_id, keys)
        self.learned: dict[str, FeedbackConfig] = {}

    def apply(self, one: WireFeedback) -> None:
        """Check the feedback against its key's config, and fill in what follows from that."""
        stated = None
        if one.feedback_config is not None:
            stated = configs.read_config(one.feedback_config)
        score = _score(one.score)
        known = self.known.get(one.key)
        if known is None:
            known = FeedbackConfig(
                workspace_id=self.workspace_id,
                key=one.key,
                config=stated or configs.infer_config(score, one.value),
                is_inferred=stated is None,
            )
            self.known[one.key] = self.learned[one.key] = known
        elif stated is not None and known.is_inferred:
            known.config, known.is_inferred = stated, False
            self.learned[one.key] = known
        elif stated is not None and stated != known.config:
            raise errors.FeedbackConfigContradicted(
                f"The feedback's config contradicts the one that {one.key!r:.100} has."
            )
        if not configs.fits(known, score, one.value):
            raise errors.FeedbackOutOfBounds(f"{one.key!r:.100} does not take this score or value.")
        one.score, one.value = configs.complete(known.config, score, one.value)

    def save(self) -> None:
        if self.learned:
            configs.save_learned(self.workspace_id, list(self.learned.values()))


def _row(workspace_id: UUID, one: WireFeedback, user_id: UUID | None, now: datetime) -> Feedback:
    source = one.feedback_source or {"type": "api"}
    given_at = moment(one.created_at, "created_at")
    return Feedback(
        id=one.id,
        workspace_id=workspace_id,
        created_at=min(given_at or now, now),
        project_id=one.session_id,
        run_id=one.run_id,
        trace_id=one.trace_id,
        is_root=None if one.trace_id is None or one.run_id is None else one.run_id == one.trace_id,
        start_time=moment(one.start_time, "start_time") if one.run_id else None,
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
        source_type=str(source.get("type") or "api")[:SOURCE_LENGTH],
        user_id=user_id,
        extra=one.extra,
        feedback_group_id=one.feedback_group_id,
        comparative_experiment_id=one.comparative_experiment_id,
        is_error=bool(one.error),
    )


def _score(score: float | bool | None) -> float | None:  # noqa: FBT001  (the wire's own type)
    return None if score is None else float(score)


def _label(value: Any) -> str | None:
    """What the value counts as in statistics."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        text = value if isinstance(value, str) else f"{value:g}"
        return text if 0 < len(text) <= LABEL_LENGTH else None
    return None
