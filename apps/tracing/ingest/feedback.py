"""Feedback that comes in the stream of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from apps.core.ids import uuid7
from apps.core.json import loads, storable
from apps.tracing.ingest.wire import Refusal
from apps.tracing.json_repair import repair
from apps.tracing.models import Feedback, Project

KEY_LENGTH = 1000


class WireFeedback(msgspec.Struct, kw_only=True):
    """The fields of a feedback on the wire."""

    key: str
    id: UUID | None = None
    run_id: UUID | None = None
    trace_id: UUID | None = None
    session_id: UUID | None = None
    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    correction: Any = None
    feedback_source: dict[str, Any] | None = None
    feedback_group_id: UUID | None = None
    comparative_experiment_id: UUID | None = None
    extra: dict[str, Any] | None = None
    error: bool | None = None


_decoder = msgspec.json.Decoder(WireFeedback)


def decode_feedback(text: bytes, *, feedback_id: UUID | None = None) -> WireFeedback:
    """The feedback in a JSON object; `Refusal` says what is wrong with it."""
    try:
        try:
            feedback = _decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            feedback = _decoder.decode(repair(text))
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise Refusal(f"The feedback cannot be read: {error}") from None
    if feedback_id is not None:
        feedback.id = feedback_id
    if feedback.run_id is None and feedback.session_id is None:
        raise Refusal("The feedback names neither a run nor a project.")
    if not feedback.key or len(feedback.key) > KEY_LENGTH:
        raise Refusal(f"`key` must have 1 to {KEY_LENGTH} characters.")
    try:
        for name in ("value", "correction", "feedback_source", "extra"):
            setattr(feedback, name, _storable(getattr(feedback, name)))
    except (ValueError, RecursionError):
        raise Refusal("The feedback is nested too deeply.") from None
    return feedback


def _storable(value: Any) -> Any:
    """The value as jsonb takes it."""
    return None if value is None else loads(storable(msgspec.json.encode(value)))


def store_feedback(workspace_id: UUID, given: Sequence[WireFeedback]) -> list[WireFeedback]:
    """Store what is new and return those whose project does not exist here.

    The first of an id stands: a repeat changes nothing. A run may come after its feedback.
    """
    if not given:
        return []
    named = {one.session_id for one in given if one.session_id is not None}
    projects: set[UUID] = named and set(
        Project.objects.for_workspace(workspace_id)
        .present()
        .filter(pk__in=named)
        .values_list("pk", flat=True)
    )
    known = [one for one in given if one.session_id is None or one.session_id in projects]
    # In one order, so that two requests with the same feedback do not wait in a circle.
    rows = sorted((_row(workspace_id, one) for one in known), key=lambda row: row.pk)
    Feedback.objects.for_workspace(workspace_id).bulk_create(rows, ignore_conflicts=True)
    return [one for one in given if one.session_id is not None and one.session_id not in projects]


def _row(workspace_id: UUID, one: WireFeedback) -> Feedback:
    return Feedback(
        id=one.id or uuid7(),
        workspace_id=workspace_id,
        project_id=one.session_id,
        run_id=one.run_id,
        trace_id=one.trace_id,
        key=_clean(one.key),
        score=None if one.score is None else float(one.score),
        value=one.value,
        comment=None if one.comment is None else _clean(one.comment),
        correction=one.correction,
        source=one.feedback_source or {"type": "api"},
        extra=one.extra,
        feedback_group_id=one.feedback_group_id,
        comparative_experiment_id=one.comparative_experiment_id,
        is_error=bool(one.error),
    )


def _clean(text: str) -> str:
    return text.replace("\x00", "\ufffd")
