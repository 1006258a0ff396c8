"""The data of a run that filters are evaluated on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import orjson

from apps.core.json import LazyFragment
from apps.trace_store.filters.syntax import UNSTORABLE
from apps.trace_store.media import text_without_media
from apps.trace_store.types import RunRow


class Pair(NamedTuple):
    """A key and its value as text; None for null and for nested values of payloads."""

    key: str
    value: str | None
    is_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackItem:
    key: str
    score: float | None = None
    value: str | None = None
    """A string as it is, other values as jsonb text."""
    value_is_number: bool = False
    comment: str | None = None
    source: str | None = None
    is_error: bool = False
    modified_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class FilterSubject:
    """A run with its content; payloads are the stored JSON, `run` includes totals."""

    run: RunRow
    inputs: bytes | LazyFragment | None = None
    outputs: bytes | LazyFragment | None = None
    error: bytes | LazyFragment | None = None
    feedback: Sequence[FeedbackItem] = ()
    reference_dataset_id: UUID | None = None

    @cached_property
    def error_text(self) -> str | None:
        """The error as text; an error that is not a string is its JSON.

        Without the payload, the preview is returned.
        """
        if self.error is None:
            return self.run.error_preview
        text = _load(self.error)
        value = _decode(text)
        return _clean(value if isinstance(value, str) else text.decode("utf-8", "replace"))

    @cached_property
    def metadata_pairs(self) -> Sequence[Pair]:
        """The top-level pairs of the metadata; nested values are their JSON."""
        members: dict[str, msgspec.Raw] = _members.decode(self.run.metadata_json)
        return [Pair(key, *_pair_value(bytes(raw))) for key, raw in members.items()]

    @cached_property
    def input_pairs(self) -> Sequence[Pair]:
        return list(extract_pairs(self.inputs))

    @cached_property
    def output_pairs(self) -> Sequence[Pair]:
        return list(extract_pairs(self.outputs))


def extract_pairs(payload: bytes | LazyFragment | None) -> Iterator[Pair]:
    """All members of the payload by path; the elements of a list share its path.

    Values have no base64 of files.
    """
    if payload is None:
        return
    # A stack instead of recursion: payloads may nest deeper than the recursion limit.
    pending: list[tuple[str, bool, Any]] = [("", False, _decode(_load(payload)))]
    while pending:
        path, is_member, value = pending.pop()
        if isinstance(value, dict):
            if is_member:
                yield Pair(path, None)
            prefix = f"{path}." if path else ""
            pending += [(f"{prefix}{_clean(k)}", True, v) for k, v in reversed(value.items())]
        elif isinstance(value, list):
            if is_member:
                yield Pair(path, None)
            pending += [(path, False, item) for item in reversed(value)]
        else:
            text, is_number = _scalar_text(value)
            yield Pair(path, None if text is None else text_without_media(text), is_number)


def extract_texts(payload: bytes | LazyFragment | None) -> Iterator[str]:
    """All strings and numbers of the payload, without keys and without base64 of files."""
    pending = [] if payload is None else [_decode(_load(payload))]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif value is not None and not isinstance(value, bool):
            yield _clean(text_without_media(str(value)))


class _Numeral(str):
    """A number with a fraction, as its literal."""

    __slots__ = ()


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decoder = msgspec.json.Decoder(float_hook=_Numeral)


def _load(payload: bytes | LazyFragment) -> bytes:
    return payload.load() if isinstance(payload, LazyFragment) else payload


def _decode(payload: bytes) -> Any:
    try:
        return _decoder.decode(payload)
    except RecursionError:
        # msgspec counts outer stack frames; orjson has a fixed limit that stored payloads respect.
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
