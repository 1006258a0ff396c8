"""The terms of the run index.

A term is the 32-bit hash (PostgreSQL `integer`) of a word, tag, pair and so on of a run. Indexing
and querying share this module. Hashes may collide: the index finds candidates, the filter decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from zlib import crc32

from apps.trace_store.filters.subjects import FilterSubject, extract_pairs, extract_texts
from apps.trace_store.filters.text_matching import PREFIX_LENGTHS, split_words

MAX_TERMS = 5_000
"""A run with more terms is indexed as one that may match anything. Beginnings do not count."""


class TermKind(IntEnum):
    """The kind of value of a term. The index stores the numbers: never change their meaning."""

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
    WORD_PREFIX = 12


_PREFIXES = {kind: crc32(f"{kind.value}\x00".encode()) for kind in TermKind}


def hash_term(kind: TermKind, text: str = "", value: str = "") -> int:
    encoded = f"{text}\x00{value}".encode("utf-8", "replace")
    return crc32(encoded, _PREFIXES[kind]) - 2**31


ANYTHING = hash_term(TermKind.ANYTHING)


def extract_terms(subject: FilterSubject) -> list[int]:
    """The sorted distinct terms of the run, without feedback and totals."""
    terms: set[int] = set()
    for term in _field_terms(subject):
        terms.add(term)
        if len(terms) > MAX_TERMS:
            return [ANYTHING]
    # Hash each distinct word once: texts repeat most of their words.
    words = _distinct_words(subject)
    terms |= {hash_term(TermKind.WORD, word) for word in words}
    if len(terms) > MAX_TERMS:
        return [ANYTHING]
    for length in PREFIX_LENGTHS:
        prefixes = {word[:length] for word in words if len(word) > length}
        terms |= {hash_term(TermKind.WORD_PREFIX, prefix) for prefix in prefixes}
    return sorted(terms)


def prefix_terms(prefix: str) -> frozenset[int]:
    """The terms of which a run has at least one if it has a word with this beginning.

    Empty if the beginning is too short for the index.
    """
    length = next((length for length in PREFIX_LENGTHS if length <= len(prefix)), None)
    if length is None:
        return frozenset()
    terms = {hash_term(TermKind.WORD_PREFIX, prefix[:length])}
    if length == len(prefix):
        terms.add(hash_term(TermKind.WORD, prefix))
    return frozenset(terms)


def searched_content(subject: FilterSubject) -> Iterator[str]:
    """The texts that `search` covers."""
    run = subject.run
    return chain(
        (run.name, subject.error_text or "", *run.tags),
        extract_texts(run.metadata_json),
        extract_texts(subject.inputs),
        extract_texts(subject.outputs),
    )


def _distinct_words(subject: FilterSubject) -> set[str]:
    words: set[str] = set()
    for text in searched_content(subject):
        words.update(split_words(text))
    return words


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
