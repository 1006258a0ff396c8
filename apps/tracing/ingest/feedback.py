"""A feedback as clients write it, alone or in the stream of runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from apps.core.json import loads, storable
from apps.tracing.ingest.wire import Refusal
from apps.tracing.json_repair import repair
from apps.tracing.models.feedback import KEY_LENGTH

_PLAIN_TEXT = ("key", "comment", "feedback_thread_id")
_VALUES = ("value", "correction", "feedback_source", "extra", "feedback_config")


class WireFeedback(msgspec.Struct, kw_only=True):
    """The fields of a feedback on the wire; null and absent mean the same."""

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
    feedback_config: dict[str, Any] | None = None
    older_feedback_config: dict[str, Any] | None = msgspec.field(
        default=None, name="feedbackConfig"
    )
    feedback_group_id: UUID | None = None
    feedback_thread_id: str | None = None
    comparative_experiment_id: UUID | None = None
    extra: dict[str, Any] | None = None
    error: bool | None = None
    start_time: str | float | None = None
    created_at: str | float | None = None
    extend_trace_retention: bool | None = None


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
    except msgspec.ValidationError as error:
        raise Refusal(f"The feedback cannot be read: {_reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"The feedback cannot be read: {error}") from None
    if feedback_id is not None:
        feedback.id = feedback_id
    if feedback.run_id is None and feedback.session_id is None:
        raise Refusal("The feedback names neither a run nor a project.")
    if not feedback.key or len(feedback.key) > KEY_LENGTH:
        raise Refusal(f"`key` must have 1 to {KEY_LENGTH} characters.")
    feedback.feedback_config = feedback.feedback_config or feedback.older_feedback_config
    for name in _PLAIN_TEXT:
        setattr(feedback, name, _clean(getattr(feedback, name)))
    for name in _VALUES:
        setattr(feedback, name, storable_value(getattr(feedback, name), name))
    return feedback


def storable_value(value: Any, name: str) -> Any:
    """The value as jsonb takes it; `Refusal` when it is nested too deeply for it."""
    if value is None:
        return None
    try:
        return loads(storable(msgspec.json.encode(value)))
    except (ValueError, RecursionError, OverflowError):
        raise Refusal(f"`{name}` is nested too deeply, or has too long a number.") from None


def _reason(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace("`$`", "the feedback")


def _clean(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "\ufffd")
