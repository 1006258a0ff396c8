"""What a filter sees of a run: everything, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import orjson

from apps.trace_store.filters.syntax import UNSTORABLE
from apps.trace_store.types import RunRow


class Pair(NamedTuple):
    """A key and its value as text; None for null, and for objects and lists in payloads."""

    key: str
    value: str | None
    is_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackItem:
    key: str
    score: float | None = None
    value: str | None = None
    """A text as it is, anything else as jsonb writes it."""
    value_is_number: bool = False
    comment: str | None = None
    source: str | None = None
    is_error: bool = False
    modified_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class FilterSubject:
    """A run with its content; payloads are the JSON that was sent, `run` has its sums."""

    run: RunRow
    inputs: bytes | None = None
    outputs: bytes | None = None
    error: bytes | None = None
    feedback: Sequence[FeedbackItem] = ()
    reference_dataset_id: UUID | None = None

    @cached_property
    def error_text(self) -> str | None:
        """A client may send an error that is no text; it is its JSON then.

        Where the payload was not asked for, its beginning stands for it.
        """
        if self.error is None:
            return self.run.error_preview
        value = _decode(self.error)
        return _clean(value if isinstance(value, str) else self.error.decode("utf-8", "replace"))

    @cached_property
    def metadata_pairs(self) -> Sequence[Pair]:
        """The metadata's own keys; a value that is an object or a list counts as its JSON."""
        members: dict[str, msgspec.Raw] = _members.decode(self.run.metadata_json)
        return [Pair(key, *_pair_value(bytes(raw))) for key, raw in members.items()]

    @cached_property
    def input_pairs(self) -> Sequence[Pair]:
        return list(extract_pairs(self.inputs))

    @cached_property
    def output_pairs(self) -> Sequence[Pair]:
        return list(extract_pairs(self.outputs))


def extract_pairs(payload: bytes | None) -> Iterator[Pair]:
    """Each member of the payload's objects by its path; a list's elements share the list's path."""
    if payload is None:
        return
    # A stack, not recursion: payloads nest deeper than Python would call.
    waiting: list[tuple[str, bool, Any]] = [("", False, _decode(payload))]
    while waiting:
        path, is_member, value = waiting.pop()
        if isinstance(value, dict):
            if is_member:
                yield Pair(path, None)
            inside = f"{path}." if path else ""
            waiting += [(f"{inside}{_clean(k)}", True, v) for k, v in reversed(value.items())]
        elif isinstance(value, list):
            if is_member:
                yield Pair(path, None)
            waiting += [(path, False, one) for one in reversed(value)]
        else:
            yield Pair(path, *_scalar_text(value))


def extract_texts(payload: bytes | None) -> Iterator[str]:
    """The texts and numbers in the payload, wherever they stand; keys are none of them."""
    waiting = [] if payload is None else [_decode(payload)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif value is not None and not isinstance(value, bool):
            yield _clean(str(value))


class _Numeral(str):
    """A number with a fraction, as it was written."""

    __slots__ = ()


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_whole = msgspec.json.Decoder(float_hook=_Numeral)


def _decode(payload: bytes) -> Any:
    try:
        return _whole.decode(payload)
    except RecursionError:
        # This parser counts the calls it is called from; the other one has a limit of its own,
        # which no stored payload is beyond.
        return orjson.loads(payload)


def _pair_value(raw: bytes) -> tuple[str | None, bool]:
    if raw[:1] in b"{[":
        return raw.decode(), False
    return _scalar_text(_decode(raw), raw)


def _scalar_text(value: Any, raw: bytes | None = None) -> tuple[str | None, bool]:
    """The value's text, and whether it is a number."""
    if isinstance(value, bool):
        return ("true" if value else "false"), False
    if value is None:
        return None, False
    if isinstance(value, str) and not isinstance(value, _Numeral):
        return _clean(value), False
    return (str(value) if raw is None else raw.decode()), True


def _clean(text: str) -> str:
    return UNSTORABLE.sub("\ufffd", text) if UNSTORABLE.search(text) else text
