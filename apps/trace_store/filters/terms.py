"""The terms of the run index.

A run is found by its words, and by the 32-bit hashes (PostgreSQL `integer`) of its tags, pairs and
so on. Indexing and querying share this module. Hashes may collide and long words are cut: the index
finds candidates, the filter decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from apps.trace_store.filters.subjects import FilterSubject, extract_pairs, extract_texts
from apps.trace_store.filters.text_matching import split_words
from apps.trace_store.run_status import Status
from apps.trace_store.types import RunType

MAX_TERMS = 7_000
"""A run with more is indexed as one that may match anything: a `tsvector` has at most 1 MB."""
MAX_WORD_LENGTH = 32
"""Longer words are indexed by their beginning of this length."""
_HASHED_BEGINNINGS = (7, 4)
"""The lengths of the beginnings that earlier versions hashed, see `hash_word`."""


class TermKind(IntEnum):
    """The kind of value of a hash. The index stores the numbers: never change their meaning."""

    ANYTHING = 0
    WORD = 1  # of an earlier version
    TAG = 2
    NAME = 3
    MODEL = 4
    THREAD = 5
    METADATA_KEY = 6
    METADATA_PAIR = 7
    INPUT_KEY = 8
    INPUT_PAIR = 9
    OUTPUT_KEY = 10
    OUTPUT_PAIR = 11
    WORD_PREFIX = 12  # of an earlier version


class RunTerms(NamedTuple):
    """The sorted distinct terms of a run."""

    hashes: tuple[int, ...]
    words: tuple[str, ...]
    """Words behind the mark of where they stand, and labels, which begin with a slash."""


class Word(NamedTuple):
    """A word, or the beginning of a word, that a filter requires."""

    text: str
    is_prefix: bool = False
    marks: str = "eior"
    """Where it may stand, of `WORD_MARKS`."""


WORD_MARKS = {
    "error": "e",
    "inputs": "i",
    "outputs": "o",
    "name": "r",
    "tags": "r",
    "metadata": "r",
}
"""The letter in front of the words of a field."""
_PREFIXES = {kind: crc32(f"{kind.value}\x00".encode()) for kind in TermKind}


def hash_term(kind: TermKind, text: str = "", value: str = "") -> int:
    encoded = f"{text}\x00{value}".encode("utf-8", "replace")
    return crc32(encoded, _PREFIXES[kind]) - 2**31


ANYTHING = hash_term(TermKind.ANYTHING)
ANY_WORD = "/any"
"""The label of runs that may match anything."""
ROOT = "/root"
_UNLIMITED = RunTerms((ANYTHING,), (ANY_WORD,))


def status_label(status: str) -> str | None:
    return f"/status:{status}" if status in _STATUSES else None


def type_label(run_type: str) -> str | None:
    return f"/type:{run_type}" if run_type in _RUN_TYPES else None


_STATUSES, _RUN_TYPES = frozenset(Status), frozenset(RunType)


def extract_terms(subject: FilterSubject) -> RunTerms:
    """The terms of the run, without feedback and totals."""
    run = subject.run
    return with_labels(
        extract_content_terms(subject), str(run.status), run.run_type, is_root=run.is_root
    )


def extract_content_terms(subject: FilterSubject) -> RunTerms:
    """The terms of the run without its labels."""
    hashes: set[int] = set()
    for term in _field_terms(subject):
        hashes.add(term)
        if len(hashes) > MAX_TERMS:
            return _UNLIMITED
    words: set[str] = set()
    for mark, texts in _searched_texts(subject):
        distinct: set[str] = set()
        for text in texts:
            distinct.update(split_words(text))
        words |= {mark + word[:MAX_WORD_LENGTH] for word in distinct}
    if len(hashes) + len(words) > MAX_TERMS:
        return _UNLIMITED
    return RunTerms(tuple(sorted(hashes)), tuple(sorted(words)))


def with_labels(terms: RunTerms, status: str, run_type: str, *, is_root: bool) -> RunTerms:
    """Add what filters often combine with words, so that the index finds runs that have both."""
    if terms == _UNLIMITED:
        return terms
    labels = (status_label(status), type_label(run_type), ROOT if is_root else None)
    # A slash sorts before letters and digits.
    return terms._replace(words=(*sorted(filter(None, labels)), *terms.words))


def join_terms(first: RunTerms, second: RunTerms) -> RunTerms:
    """The terms of a run with the content of both."""
    if _UNLIMITED in {first, second}:
        return _UNLIMITED
    hashes, words = {*first.hashes, *second.hashes}, {*first.words, *second.words}
    return RunTerms(tuple(sorted(hashes)), tuple(sorted(words)))


def hash_word(word: Word) -> frozenset[int]:
    """The hashes of which a run that an earlier version indexed has one if it has the word.

    Empty for a beginning that was not indexed.
    """
    text = word.text
    if not word.is_prefix:
        return frozenset({hash_term(TermKind.WORD, text)})
    length = next((length for length in _HASHED_BEGINNINGS if length <= len(text)), None)
    if length is None:
        return frozenset()
    terms = {hash_term(TermKind.WORD_PREFIX, text[:length])}
    if length == len(text):
        terms.add(hash_term(TermKind.WORD, text))
    return frozenset(terms)


def searched_content(subject: FilterSubject) -> Iterator[str]:
    """The texts that `search` covers."""
    return chain.from_iterable(texts for _, texts in _searched_texts(subject))


def _searched_texts(subject: FilterSubject) -> Iterator[tuple[str, Iterable[str]]]:
    """Texts with the mark of their words, those that are at hand first."""
    run = subject.run
    yield "r", (run.name, *run.tags)
    yield "r", extract_texts(run.metadata_json)
    yield "e", (subject.error_text or "",)
    yield "i", extract_texts(subject.inputs)
    yield "o", extract_texts(subject.outputs)


def _field_terms(subject: FilterSubject) -> Iterator[int]:
    run = subject.run
    yield hash_term(TermKind.NAME, run.name)
    if run.model is not None:
        yield hash_term(TermKind.MODEL, run.model)
    if run.thread_key is not None:
        yield hash_term(TermKind.THREAD, run.thread_key)
    for tag in run.tags:
        yield hash_term(TermKind.TAG, tag)
    for pairs, key_kind, pair_kind in (
        (subject.metadata_pairs, TermKind.METADATA_KEY, TermKind.METADATA_PAIR),
        (extract_pairs(subject.inputs), TermKind.INPUT_KEY, TermKind.INPUT_PAIR),
        (extract_pairs(subject.outputs), TermKind.OUTPUT_KEY, TermKind.OUTPUT_PAIR),
    ):
        for pair in pairs:
            yield hash_term(key_kind, pair.key)
            if pair.value is not None:
                yield hash_term(pair_kind, pair.key, pair.value)
