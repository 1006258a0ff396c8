"""What an index of runs holds, and what a filter needs to find there.

A term is a number of 32 bits (PostgreSQL's `integer`) that stands for one word of a run, one tag,
one pair and so on. Both sides make theirs here, so they cannot differ. Two things may share a
number: the index finds runs that may match, the filter decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from zlib import crc32

from apps.trace_store.filters.subjects import Subject, pairs, texts
from apps.trace_store.filters.words import words

MOST_TERMS = 5_000
"""A run with more is indexed as one that may match anything."""


class Term(IntEnum):
    """What a term stands for. The numbers are in the index: never change their meaning."""

    ANYTHING = 0
    WORD = 1
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


_BEGINNINGS = {kind: crc32(f"{kind.value}\x00".encode()) for kind in Term}


def term(kind: Term, text: str = "", value: str = "") -> int:
    what = f"{text}\x00{value}".encode("utf-8", "replace")
    return crc32(what, _BEGINNINGS[kind]) - 2**31


ANYTHING = term(Term.ANYTHING)


def terms_of(subject: Subject) -> list[int]:
    """The run's terms, in order and each once. Its feedback and its sums are not looked at."""
    found: set[int] = set()
    for one in _terms(subject):
        found.add(one)
        if len(found) > MOST_TERMS:
            return [ANYTHING]
    # Each word once: a text repeats most of its words.
    found |= {term(Term.WORD, word) for word in _words(subject)}
    return sorted(found) if len(found) <= MOST_TERMS else [ANYTHING]


def content_of(subject: Subject) -> Iterator[str]:
    """The texts that `search` looks through."""
    run = subject.run
    return chain(
        (run.name, subject.error_text or "", *run.tags),
        texts(run.metadata_json),
        texts(subject.inputs),
        texts(subject.outputs),
    )


def _words(subject: Subject) -> set[str]:
    found: set[str] = set()
    for text in content_of(subject):
        found.update(words(text))
    return found


def _terms(subject: Subject) -> Iterator[int]:
    run = subject.run
    yield term(Term.NAME, run.name)
    if run.model is not None:
        yield term(Term.MODEL, run.model)
    if run.thread_key is not None:
        yield term(Term.THREAD, run.thread_key)
    for tag in run.tags:
        yield term(Term.TAG, tag)
    for members, of_key, of_pair in (
        (subject.metadata_pairs, Term.METADATA_KEY, Term.METADATA_PAIR),
        (pairs(subject.inputs), Term.INPUT_KEY, Term.INPUT_PAIR),
        (pairs(subject.outputs), Term.OUTPUT_KEY, Term.OUTPUT_PAIR),
    ):
        for pair in members:
            yield term(of_key, pair.key)
            if pair.value is not None:
                yield term(of_pair, pair.key, pair.value)
