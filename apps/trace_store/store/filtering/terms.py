"""What the index of terms must hold of a run for a filter to be true of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeAlias

from apps.trace_store.filters.fields import Items
from apps.trace_store.filters.nodes import (
    And,
    Comparison,
    Condition,
    Expression,
    JsonObject,
    Not,
    Or,
    Some,
)
from apps.trace_store.filters.patterns import words_of
from apps.trace_store.filters.terms import ANYTHING, Term, term
from apps.trace_store.filters.words import words

Clause: TypeAlias = frozenset[int]
"""At least one of these."""
Terms: TypeAlias = tuple[Clause, ...]
"""All of these clauses, of which there is at least one."""

_MOST_CLAUSES = 20
_MOST_ALTERNATIVES = 200
_KINDS = {
    Items.METADATA: ("metadata", Term.METADATA_KEY, Term.METADATA_PAIR),
    Items.INPUTS: ("input", Term.INPUT_KEY, Term.INPUT_PAIR),
    Items.OUTPUTS: ("output", Term.OUTPUT_KEY, Term.OUTPUT_PAIR),
}
_WHOLE = {
    "tags": Term.TAG,
    "name": Term.NAME,
    "model": Term.MODEL,
    "thread_id": Term.THREAD,
}


def needed_terms(expression: Expression) -> Terms | None:
    """Each set holds the term of runs that the index cannot tell about, too."""
    clauses = {clause for clause in _needed(expression) if 0 < len(clause) <= _MOST_ALTERNATIVES}
    if not clauses:
        return None
    # The narrow ones first, and no more than are quick to look up.
    chosen = sorted(clauses, key=lambda clause: (len(clause), sorted(clause)))[:_MOST_CLAUSES]
    return tuple(clause | {ANYTHING} for clause in chosen)


def _needed(expression: Expression) -> Sequence[Clause]:
    match expression:
        case And(parts):
            return [clause for part in parts for clause in _needed(part)]
        case Or(parts):
            # One clause of each part: whichever part is true, its clause holds.
            narrowest = [min(_needed(part), key=len, default=frozenset()) for part in parts]
            return [frozenset().union(*narrowest)] if all(narrowest) else []
        case Some():
            return _of_items(expression)
        case Condition():
            return _of_condition(expression)
        case Not():
            return []


def _of_condition(condition: Condition) -> Sequence[Clause]:
    name, value = condition.field.name, condition.value
    match condition.comparison:
        case Comparison.SEARCH:
            return _all_words(words(str(value)))
        case Comparison.EXISTS:
            return [frozenset({term(Term.METADATA_KEY, str(value))})]
        case Comparison.CONTAINS if isinstance(value, JsonObject):
            return [frozenset({one}) for one in _of_object(value)]
    texts = _texts(condition)
    if texts is not None and name in _WHOLE:
        return [frozenset(term(_WHOLE[name], text) for text in texts)]
    if name in {"name", "error", "tags"}:
        return _words_in(condition)
    return []


def _of_object(value: JsonObject) -> Iterable[int]:
    for key, inner in json.loads(value.text).items():
        yield term(Term.METADATA_KEY, key)
        # Numbers are equal in more than one spelling.
        if isinstance(inner, str):
            yield term(Term.METADATA_PAIR, key, inner)
        elif isinstance(inner, bool):
            yield term(Term.METADATA_PAIR, key, "true" if inner else "false")


def _of_items(some: Some) -> Sequence[Clause]:
    if some.items not in _KINDS:
        return []
    prefix, of_key, of_pair = _KINDS[some.items]
    found: list[Clause] = []
    keys: list[Sequence[str]] = []
    values: list[Sequence[str]] = []
    for condition in some.conditions:
        texts = _texts(condition)
        if condition.field.name == f"{prefix}_key":
            if texts is not None:
                keys.append(texts)
                found.append(frozenset(term(of_key, text) for text in texts))
            continue
        if texts is not None:
            values.append(texts)
        if some.items is not Items.METADATA:
            found += _words_in(condition)
    for names, contents in product(keys, values):
        if len(names) * len(contents) <= _MOST_ALTERNATIVES:
            pairs = product(names, contents)
            found.append(frozenset(term(of_pair, name, content) for name, content in pairs))
    return found


def _texts(condition: Condition) -> Sequence[str] | None:
    """The texts of which the field is one; None when it may be others."""
    if condition.comparison is Comparison.EQUAL and isinstance(condition.value, str):
        return [condition.value]
    if condition.comparison is Comparison.AMONG and isinstance(condition.value, tuple):
        return [str(one) for one in condition.value]
    return None


def _words_in(condition: Condition) -> Sequence[Clause]:
    """Words that the value has for certain."""
    texts = _texts(condition)
    if texts is None:
        if condition.comparison in {Comparison.LIKE, Comparison.ILIKE}:
            return _all_words(words_of(str(condition.value)))
        return []
    if len(texts) == 1:
        return _all_words(words(texts[0]))
    longest = [max(_indexed(words(text)), key=len, default="") for text in texts]
    return [frozenset(term(Term.WORD, word) for word in longest)] if all(longest) else []


def _all_words(found: Iterable[str]) -> Sequence[Clause]:
    # Long words are rare words.
    longest = sorted(_indexed(found), key=lambda word: (-len(word), word))[:_MOST_CLAUSES]
    return [frozenset({term(Term.WORD, word)}) for word in longest]


def _indexed(found: Iterable[str]) -> set[str]:
    """Words that the index has wherever they are: not those of a boolean, which is no text."""
    return set(found) - {"true", "false"}
