"""Conditions on `trace_store_run_terms t` that its indexes serve."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.trace_store.filters.terms import ANY_WORD, ANYTHING, MAX_WORD_LENGTH, Word, hash_word
from apps.trace_store.postgres.filtering.terms import Clause, RequiredTerms
from apps.trace_store.postgres.postprocess.term_index import salt_terms, salted_marks

_Condition = tuple[str, Sequence[Any]]
_HAS_HASH, _HAS_WORDS = "t.terms && %s", "t.words @@ %s::tsquery"


def term_conditions(
    workspace_id: UUID, terms: RequiredTerms, labels: Collection[frozenset[str]] = ()
) -> list[_Condition]:
    """The conditions that runs meet which have at least one term of each clause.

    A match also has at least one label of each set. They only narrow searches for words: most runs
    have the labels that most filters name.
    """
    return list(_Builder(workspace_id).build(terms, labels))


class _Builder:
    def __init__(self, workspace_id: UUID) -> None:
        self._workspace_id = workspace_id
        self._marks = salted_marks(workspace_id)
        self._has_hashed_words = _has_backlog(workspace_id)

    def build(
        self, terms: RequiredTerms, labels: Collection[frozenset[str]]
    ) -> Iterator[_Condition]:
        word_clauses: list[Clause] = []
        for clause in terms:
            hashes = {term for term in clause if isinstance(term, int)}
            if not hashes:
                word_clauses.append(clause)
            elif len(hashes) == len(clause):
                yield self._has_hash(hashes)
            else:
                yield _any_of([self._has_hash(hashes), *self._has_words([clause - hashes], [])])
        if word_clauses:
            yield _any_of(self._has_words(word_clauses, labels))

    def _has_hash(self, hashes: Iterable[int]) -> _Condition:
        return _HAS_HASH, [salt_terms(self._workspace_id, {*hashes, ANYTHING})]

    def _has_words(
        self, clauses: Sequence[Clause], labels: Collection[frozenset[str]]
    ) -> Iterator[_Condition]:
        alternatives = [
            *(
                [item for word in clause if isinstance(word, Word) for item in self._quote(word)]
                for clause in clauses
            ),
            *([self._quote_label(label) for label in group] for group in labels),
        ]
        text = " & ".join(f"({' | '.join(sorted(group))})" for group in alternatives)
        yield _HAS_WORDS, [f"({text}) | {self._quote_label(ANY_WORD)}"]
        if self._has_hashed_words:
            # The earlier version stored no words.
            conditions = [("t.words IS NULL", ()), *filter(None, map(self._was_hashed, clauses))]
            yield (
                " AND ".join(text for text, _ in conditions),
                [value for _, values in conditions for value in values],
            )

    def _was_hashed(self, clause: Clause) -> _Condition | None:
        groups = [hash_word(word) for word in clause if isinstance(word, Word)]
        return self._has_hash(frozenset().union(*groups)) if all(groups) else None

    def _quote(self, word: Word) -> Iterator[str]:
        """Quote the word for a `tsquery`. It consists of letters and digits."""
        is_prefix = word.is_prefix and len(word.text) < MAX_WORD_LENGTH
        for mark in word.marks:
            text = self._marks[mark] + word.text[:MAX_WORD_LENGTH]
            yield f"'{text}'{':*' if is_prefix else ''}"

    def _quote_label(self, label: str) -> str:
        return f"'{self._marks[label[0]]}{label[1:]}'"


def _any_of(conditions: Iterable[_Condition]) -> _Condition:
    parts = list(conditions)
    if len(parts) == 1:
        return parts[0]
    return (
        " OR ".join(f"({text})" for text, _ in parts),
        [value for _, values in parts for value in values],
    )


def _has_backlog(workspace_id: UUID) -> bool:
    """Whether an earlier version indexed runs of the workspace."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM trace_store_term_backlog WHERE workspace_id = %s)",
            [workspace_id],
        )
        return cursor.fetchone() == (True,)
