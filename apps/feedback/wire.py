"""Decodes feedback from the JSON of a feedback request or of a multipart request with runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from apps.core.json import loads, storable
from apps.feedback.errors import InvalidFeedback
from apps.feedback.models import KEY_LENGTH
from apps.trace_store.json_repair import repair

_TEXT_FIELDS = ("key", "comment", "feedback_thread_id")
_JSON_FIELDS = ("value", "correction", "feedback_source", "extra", "feedback_config", "metadata")
_EXACT_FIELDS = ("score", "value", "correction")
"""Fields whose NaN is refused: as null it would be another result."""
MAX_SCORE = 1e100
"""Sums of squares of such scores, as statistics need them, stay within a double."""


class WireFeedback(msgspec.Struct, kw_only=True):
    """The fields of feedback on the wire; null and absent are equivalent."""

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


class FeedbackChanges(msgspec.Struct, kw_only=True):
    """Changes to feedback: null clears a field, an absent field stays as it is."""

    score: float | bool | msgspec.UnsetType | None = msgspec.UNSET
    value: Any = msgspec.UNSET
    comment: str | msgspec.UnsetType | None = msgspec.UNSET
    correction: Any = msgspec.UNSET
    feedback_config: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET

    def as_dict(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not msgspec.UNSET
        }


class TokenFeedback(msgspec.Struct, kw_only=True):
    """The feedback that the holder of a token gives."""

    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    correction: Any = None
    metadata: dict[str, Any] | None = None
    extend_trace_retention: bool | None = None


_feedback_decoder = msgspec.json.Decoder(WireFeedback)
_changes_decoder = msgspec.json.Decoder(FeedbackChanges)
_token_decoder = msgspec.json.Decoder(TokenFeedback)
Struct = TypeVar("Struct", bound=msgspec.Struct)


def decode_feedback(text: bytes, *, feedback_id: UUID | None = None) -> WireFeedback:
    """Decode a JSON object; raise `InvalidFeedback` with the reason if it is invalid."""
    feedback = _decode(_feedback_decoder, text)
    if feedback_id is not None:
        feedback.id = feedback_id
    if feedback.address is not None and feedback.session_id is not None:
        raise InvalidFeedback("Set either `session_id` or `address`.")
    # Without a run id the feedback is on the root of the trace.
    if feedback.session_id is None:
        feedback.run_id = feedback.run_id or feedback.trace_id
    if feedback.run_id is None and feedback.session_id is None and feedback.address is None:
        raise InvalidFeedback("Set `run_id`, `trace_id`, `session_id` or `address`.")
    if not feedback.key or len(feedback.key) > KEY_LENGTH:
        raise InvalidFeedback(f"`key` must have 1 to {KEY_LENGTH} characters.")
    feedback.feedback_config = feedback.feedback_config or feedback.older_feedback_config
    return feedback


def decode_changes(text: bytes) -> dict[str, Any]:
    """Return the changed fields by name."""
    return _decode(_changes_decoder, text).as_dict()


def decode_token_feedback(text: bytes) -> TokenFeedback:
    return _decode(_token_decoder, text or b"{}")


def check_readable(fields: Mapping[str, Any]) -> None:
    """Raise `InvalidFeedback` for a value that the public clients cannot read back.

    Their model is strict: one such item makes every list that holds it unreadable. The source is
    `FeedbackBase` in `schemas.py` of `langsmith` 0.11, the oldest supported client.
    """
    score = fields.get("score")
    if score is not None and not abs(score) <= MAX_SCORE:  # also false for NaN
        raise InvalidFeedback(f"`score` must be a number from -{MAX_SCORE:g} to {MAX_SCORE:g}.")
    if not isinstance(fields.get("value"), str | int | float | dict | None):
        raise InvalidFeedback("`value` must be an object, string, number, boolean or null.")
    if not isinstance(fields.get("correction"), str | dict | None):
        raise InvalidFeedback("`correction` must be an object, string or null.")
    source = fields.get("feedback_source") or {}
    if not isinstance(source.get("type"), str | None):
        raise InvalidFeedback("`feedback_source.type` must be a string.")
    if not isinstance(source.get("metadata"), dict | None):
        raise InvalidFeedback("`feedback_source.metadata` must be an object or null.")


def _decode(decoder: msgspec.json.Decoder[Struct], text: bytes) -> Struct:
    try:
        try:
            feedback = decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            _reject_non_finite(text)
            feedback = decoder.decode(repair(text))
    except msgspec.ValidationError as error:
        raise InvalidFeedback(f"The feedback cannot be parsed: {_describe(error)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFeedback(f"The feedback cannot be parsed: {error}") from None
    for name in feedback.__struct_fields__:
        if name in _TEXT_FIELDS:
            setattr(feedback, name, _storable_text(getattr(feedback, name)))
        elif name in _JSON_FIELDS:
            setattr(feedback, name, _storable_value(getattr(feedback, name), name))
    return feedback


def _reject_non_finite(text: bytes) -> None:
    """Raise `InvalidFeedback` if a result has NaN or an infinite number, which JSON lacks."""
    fields = json.loads(text.decode("utf-8", "replace"), strict=False)
    for name in _EXACT_FIELDS if isinstance(fields, dict) else ():
        if not _is_finite(fields.get(name)):
            raise InvalidFeedback(f"`{name}` has NaN or an infinite number.", "not_finite")


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
    return True


def _storable_value(value: Any, name: str) -> Any:
    """Return the value in a form that jsonb accepts.

    Raises `InvalidFeedback` if it is nested too deeply or has too long a number.
    """
    if value is None or value is msgspec.UNSET:
        return value
    try:
        return loads(storable(msgspec.json.encode(value)))
    except (ValueError, RecursionError, OverflowError):
        raise InvalidFeedback(f"`{name}` is nested too deeply, or has too long a number.") from None


def _describe(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace("`$`", "the feedback")


def _storable_text(text: Any) -> Any:
    return text if not isinstance(text, str) else text.replace("\x00", "\ufffd")
