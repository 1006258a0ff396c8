"""A feedback as clients write it, alone or in the stream of runs."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

import msgspec

from apps.core.json import loads, storable
from apps.feedback.models import KEY_LENGTH
from apps.ingest.wire import Refusal
from apps.trace_store.json_repair import repair

_PLAIN_TEXT = ("key", "comment", "feedback_thread_id")
_VALUES = ("value", "correction", "feedback_source", "extra", "feedback_config", "metadata")


class WireFeedback(msgspec.Struct, kw_only=True):
    """The fields of a feedback on the wire; null and absent mean the same."""

    key: str
    id: UUID | None = None
    run_id: UUID | None = None
    trace_id: UUID | None = None
    session_id: UUID | None = None
    address: str | None = None
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


class WireChange(msgspec.Struct, kw_only=True):
    """What a feedback is changed to; null is a value here, absent is none."""

    score: float | bool | msgspec.UnsetType | None = msgspec.UNSET
    value: Any = msgspec.UNSET
    comment: str | msgspec.UnsetType | None = msgspec.UNSET
    correction: Any = msgspec.UNSET
    feedback_config: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not msgspec.UNSET
        }


class WireAnswer(msgspec.Struct, kw_only=True):
    """What the holder of a token says."""

    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    correction: Any = None
    metadata: dict[str, Any] | None = None
    extend_trace_retention: bool | None = None


_feedback = msgspec.json.Decoder(WireFeedback)
_changes = msgspec.json.Decoder(WireChange)
_answers = msgspec.json.Decoder(WireAnswer)
S = TypeVar("S", bound=msgspec.Struct)


def decode_feedback(text: bytes, *, feedback_id: UUID | None = None) -> WireFeedback:
    """The feedback in a JSON object; `Refusal` says what is wrong with it."""
    feedback = _decoded(_feedback, text)
    if feedback_id is not None:
        feedback.id = feedback_id
    if feedback.address is not None and feedback.session_id is not None:
        raise Refusal("Give either `session_id` or `address`.")
    # Of a trace the root is meant where no run is named.
    if feedback.session_id is None:
        feedback.run_id = feedback.run_id or feedback.trace_id
    if feedback.run_id is None and feedback.session_id is None and feedback.address is None:
        raise Refusal("The feedback names neither a run nor a project.")
    if not feedback.key or len(feedback.key) > KEY_LENGTH:
        raise Refusal(f"`key` must have 1 to {KEY_LENGTH} characters.")
    feedback.feedback_config = feedback.feedback_config or feedback.older_feedback_config
    return feedback


def decode_change(text: bytes) -> dict[str, Any]:
    """What is given, by name."""
    return _decoded(_changes, text).given()


def decode_answer(text: bytes) -> WireAnswer:
    return _decoded(_answers, text or b"{}")


def _decoded(decoder: msgspec.json.Decoder[S], text: bytes) -> S:
    try:
        try:
            found = decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = decoder.decode(repair(text))
    except msgspec.ValidationError as error:
        raise Refusal(f"The feedback cannot be read: {_reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"The feedback cannot be read: {error}") from None
    for name in found.__struct_fields__:
        if name in _PLAIN_TEXT:
            setattr(found, name, _clean(getattr(found, name)))
        elif name in _VALUES:
            setattr(found, name, storable_value(getattr(found, name), name))
    return found


def storable_value(value: Any, name: str) -> Any:
    """The value as jsonb takes it; `Refusal` when it is nested too deeply for it."""
    if value is None or value is msgspec.UNSET:
        return value
    try:
        return loads(storable(msgspec.json.encode(value)))
    except (ValueError, RecursionError, OverflowError):
        raise Refusal(f"`{name}` is nested too deeply, or has too long a number.") from None


def _reason(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace("`$`", "the feedback")


def _clean(text: Any) -> Any:
    return text if not isinstance(text, str) else text.replace("\x00", "\ufffd")
