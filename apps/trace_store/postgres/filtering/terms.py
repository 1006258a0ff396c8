"""Derives the terms that a run must have to match a filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias, TypeGuard

from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Expression,
    JsonObject,
    Not,
    Or,
)
from apps.trace_store.filters.query_analysis import split_conjunction
from apps.trace_store.filters.terms import (
    ROOT,
    WORD_MARKS,
    TermKind,
    Word,
    hash_term,
    status_label,
    type_label,
)
from apps.trace_store.filters.text_matching import parse_search, required_words, split_words

Term: TypeAlias = int | Word
Clause: TypeAlias = frozenset[Term]
"""At least one of these terms is required, unless the run may match anything."""
RequiredTerms: TypeAlias = tuple[Clause, ...]
"""All of these clauses are required; never empty."""

_MAX_CLAUSES = 20
_MAX_ALTERNATIVES = 200
_ITEM_TERMS = {
    ItemKind.METADATA: ("metadata", TermKind.METADATA_KEY, TermKind.METADATA_PAIR),
    ItemKind.INPUTS: ("input", TermKind.INPUT_KEY, TermKind.INPUT_PAIR),
    ItemKind.OUTPUTS: ("output", TermKind.OUTPUT_KEY, TermKind.OUTPUT_PAIR),
}
_FIELD_TERMS = {
    "tags": TermKind.TAG,
    "name": TermKind.NAME,
    "model": TermKind.MODEL,
    "thread_id": TermKind.THREAD,
}


def required_terms(expression: Expression) -> RequiredTerms | None:
    """Return the clauses that a match must meet; None if the filter implies none."""
    clauses = {clause for clause in _clauses(expression) if 0 < len(clause) <= _MAX_ALTERNATIVES}
    if not clauses:
        return None
    # The narrowest clauses, limited to what is quick to look up.
    chosen = sorted(clauses, key=lambda clause: (len(clause), sorted(map(str, clause))))
    return tuple(chosen[:_MAX_CLAUSES])


def required_labels(expression: Expression | None) -> Sequence[frozenset[str]]:
    """The labels of which a match has at least one, of each set."""
    parts = [] if expression is None else split_conjunction(expression)
    labels = [_labels(part) for part in parts if isinstance(part, Condition)]
    return [frozenset(group) for group in labels if _are_known(group)]


def _labels(condition: Condition) -> Sequence[str | None]:
    name = condition.field.name
    if name == "is_root":
        is_required = condition.comparison is Comparison.EQUAL and condition.value is True
        return [ROOT] if is_required else []
    build_label = {"status": status_label, "run_type": type_label}.get(name)
    values = _possible_texts(condition)
    return [] if build_label is None or values is None else [build_label(item) for item in values]


def _are_known(labels: Sequence[str | None]) -> TypeGuard[Sequence[str]]:
    return bool(labels) and None not in labels


def _clauses(expression: Expression) -> Sequence[Clause]:
    match expression:
        case And(parts):
            return [clause for part in parts for clause in _clauses(part)]
        case Or(parts):
            # Take one clause of each part: whichever part matches, its clause holds.
            narrowest = [min(_clauses(part), key=len, default=frozenset()) for part in parts]
            return [frozenset().union(*narrowest)] if all(narrowest) else []
        case AnyItem():
            return _item_clauses(expression)
        case Condition():
            return _condition_clauses(expression)
        case Not():
            return []


def _condition_clauses(condition: Condition) -> Sequence[Clause]:
    name, value = condition.field.name, condition.value
    match condition.comparison:
        case Comparison.SEARCH:
            searched = parse_search(str(value))
            beginnings = sorted(searched.prefixes, key=len, reverse=True)[:_MAX_CLAUSES]
            build = _word_builder(name)
            clauses = [frozenset({build(text, is_prefix=True)}) for text in beginnings]
            return [*_require_words(searched.words, build), *clauses]
        case Comparison.EXISTS:
            return [frozenset({hash_term(TermKind.METADATA_KEY, str(value))})]
        case Comparison.CONTAINS if isinstance(value, JsonObject):
            return [frozenset({item}) for item in _object_terms(value)]
    texts = _possible_texts(condition)
    if texts is not None and name in _FIELD_TERMS:
        return [frozenset(hash_term(_FIELD_TERMS[name], text) for text in texts)]
    if name in {"name", "error", "tags"}:
        return _word_clauses(condition)
    return []


def _object_terms(value: JsonObject) -> Iterable[int]:
    for key, inner in json.loads(value.text).items():
        yield hash_term(TermKind.METADATA_KEY, key)
        # Equal numbers may be spelled differently.
        if isinstance(inner, str):
            yield hash_term(TermKind.METADATA_PAIR, key, inner)
        elif isinstance(inner, bool):
            yield hash_term(TermKind.METADATA_PAIR, key, "true" if inner else "false")


def _item_clauses(any_item: AnyItem) -> Sequence[Clause]:
    if any_item.items not in _ITEM_TERMS:
        return []
    prefix, key_kind, pair_kind = _ITEM_TERMS[any_item.items]
    clauses: list[Clause] = []
    keys: list[Sequence[str]] = []
    values: list[Sequence[str]] = []
    for condition in any_item.conditions:
        texts = _possible_texts(condition)
        if condition.field.name == f"{prefix}_key":
            if texts is not None:
                keys.append(texts)
                clauses.append(frozenset(hash_term(key_kind, text) for text in texts))
            continue
        if texts is not None:
            values.append(texts)
        if any_item.items is not ItemKind.METADATA:
            clauses += _word_clauses(condition)
    for names, contents in product(keys, values):
        if len(names) * len(contents) <= _MAX_ALTERNATIVES:
            pairs = product(names, contents)
            clauses.append(
                frozenset(hash_term(pair_kind, name, content) for name, content in pairs)
            )
    return clauses


def _possible_texts(condition: Condition) -> Sequence[str] | None:
    """The texts that the field may equal; None if it may have others."""
    if condition.comparison is Comparison.EQUAL and isinstance(condition.value, str):
        return [condition.value]
    if condition.comparison is Comparison.AMONG and isinstance(condition.value, tuple):
        return [str(item) for item in condition.value]
    return None


def _word_clauses(condition: Condition) -> Sequence[Clause]:
    """The words that the value must contain."""
    texts, build = _possible_texts(condition), _word_builder(condition.field.name)
    if texts is None:
        if condition.comparison in {Comparison.LIKE, Comparison.ILIKE}:
            return _require_words(required_words(str(condition.value)), build)
        return []
    if len(texts) == 1:
        return _require_words(split_words(texts[0]), build)
    longest = [max(_indexed_words(split_words(text)), key=len, default="") for text in texts]
    return [frozenset(map(build, longest))] if all(longest) else []


def _word_builder(field_name: str) -> Callable[..., Word]:
    """Build required words of that field; of all fields that are searched without a name."""
    mark = WORD_MARKS.get(_CONTENT_OF_ITEMS.get(field_name, field_name))
    return Word if mark is None else partial(Word, marks=mark)


_CONTENT_OF_ITEMS = {"input_value": "inputs", "output_value": "outputs"}


def _require_words(words: Iterable[str], build: Callable[..., Word]) -> Sequence[Clause]:
    # Prefer long words, because they are rarer.
    longest = sorted(_indexed_words(words), key=lambda word: (-len(word), word))[:_MAX_CLAUSES]
    return [frozenset({build(word)}) for word in longest]


def _indexed_words(words: Iterable[str]) -> set[str]:
    """The words that are always indexed; booleans are not, so `true` and `false` may be missing."""
    return set(words) - {"true", "false"}
