"""The parts of the reference evaluator: words, patterns, paths, and the terms of a run."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store import Payload
from apps.trace_store.filters import parse
from apps.trace_store.filters.reference import matches
from apps.trace_store.filters.subjects import FilterSubject, Pair, extract_pairs, extract_texts
from apps.trace_store.filters.terms import (
    ANY_WORD,
    ANYTHING,
    MAX_TERMS,
    TermKind,
    Word,
    extract_terms,
    hash_term,
)
from apps.trace_store.filters.text_matching import (
    fold_case,
    matches_like,
    required_words,
    split_words,
)
from apps.trace_store.postgres.filtering.terms import required_labels, required_terms
from tests.examples import fuzz_settings
from tests.factories.tracing import read_run, stored_run

ALPHABET = st.text(alphabet="ab%_\\ AÉéß\u0130\u0131Σ\u03c3ς退\n", max_size=8)
PATTERNS = ALPHABET.filter(lambda text: (len(text) - len(text.rstrip("\\"))) % 2 == 0)


@pytest.fixture
def run(workspace):
    return read_run(workspace, stored_run(workspace, name="agent")).row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World! 42", ["hello", "world", "42"]),
        ("order_4711-b", ["order", "4711", "b"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("\uff26\uff35\uff2c\uff2c \ufb01t", ["full", "fit"]),
        ("可以退款 ok", ["可", "以", "退", "款", "ok"]),
        ("ひらがな", ["ひ", "ら", "が", "な"]),
        ("привет мир", ["привет", "мир"]),
        (" _-\n", []),
    ],
)
def test_words_are_sequences_of_letters_and_digits_in_folded_case(text, expected):
    assert list(split_words(text)) == expected


@fuzz_settings(100)
@given(text=ALPHABET, pattern=PATTERNS)
def test_patterns_match_as_in_postgresql(db, text, pattern):
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT %s LIKE %s, lower(%s COLLATE "pg_c_utf8") LIKE %s',
            [text, pattern, text, fold_case(pattern)],
        )
        expected = cursor.fetchone()

    assert (
        matches_like(text, pattern),
        matches_like(fold_case(text), fold_case(pattern)),
    ) == expected


def test_a_pattern_of_many_wildcards_is_quick():
    assert not matches_like("a" * 100_000, "%a" * 200 + "%b%")
    assert matches_like("a" * 100_000, "%a" * 200 + "_%")


@given(ALPHABET, st.lists(st.sampled_from(["%", "_", "a", "é ", " ", "B", "\\%"]), max_size=8))
def test_required_words_of_a_pattern_are_words_of_every_matching_text(text, parts):
    pattern = "".join(parts)

    if matches_like(fold_case(text), fold_case(pattern)):
        assert required_words(pattern) <= set(split_words(text))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%order 4711 shipped%", {"4711"}),
        ("order 4711%", {"order"}),
        ("% order %", {"order"}),
        ("order", {"order"}),
        ("or_er 5", {"5"}),
        ("100\\% sure", {"100", "sure"}),
        ("%burg%", set()),
    ],
)
def test_required_words_are_the_whole_words_of_a_pattern(pattern, expected):
    assert required_words(pattern) == expected


def test_a_payload_is_flattened_to_pairs_of_path_and_value():
    payload = {
        "city": "Rome",
        "n": 1,
        "big": 123456789012345678901234567890,
        "exact": 1.50,
        "yes": True,
        "none": None,
        "messages": [{"role": "user", "parts": ["a", ["b"]]}, {"role": "ai"}],
        "empty": {},
        "a.b": {"c": "\x00"},
    }

    assert list(extract_pairs(json.dumps(payload).encode().replace(b"1.5", b"1.50"))) == [
        Pair("city", "Rome"),
        Pair("n", "1", is_number=True),
        Pair("big", "123456789012345678901234567890", is_number=True),
        Pair("exact", "1.50", is_number=True),
        Pair("yes", "true"),
        Pair("none", None),
        Pair("messages", None),
        Pair("messages.role", "user"),
        Pair("messages.parts", None),
        Pair("messages.parts", "a"),
        Pair("messages.parts", "b"),
        Pair("messages.role", "ai"),
        Pair("empty", None),
        Pair("a.b", None),
        Pair("a.b.c", "\ufffd"),
    ]
    assert list(extract_pairs(None)) == []
    assert list(extract_pairs(b'"text"')) == [Pair("", "text")]


def test_a_payload_of_the_maximum_depth_is_flattened():
    deep = b'{"a":' * 1000 + b'"x"' + b"}" * 1000

    assert list(extract_texts(deep)) == ["x"]
    assert [pair for pair in extract_pairs(deep) if pair.value] == [Pair("a" + ".a" * 999, "x")]


def test_an_error_object_is_filtered_as_its_json(run):
    subject = FilterSubject(run=replace(run, error_preview="x"), error=b'{"code": 5}')

    assert matches(parse("eq(error, '{\"code\": 5}')"), subject)
    assert matches(parse("search(error, 'code 5')"), subject)


def test_a_run_has_the_terms_of_its_content(workspace):
    run_id = stored_run(
        workspace,
        name="Lookup",
        tags=["a b"],
        error="Bad gateway",
        inputs={"user": {"city": "Rome"}, "n": 5, "ok": True},
        outputs={"list": ["x"]},
        extra={"metadata": {"thread_id": "t-1", "ls_model_name": "m-2", "none": None}},
    )
    detail = read_run(workspace, run_id)
    subject = FilterSubject(
        run=detail.row,
        inputs=detail.json(Payload.INPUTS),
        outputs=detail.json(Payload.OUTPUTS),
        error=detail.json(Payload.ERROR),
    )

    text = "rlookup ra rb ebad egateway irome i5 ox rt r1 rm r2"
    hashes, words = extract_terms(subject)
    assert words == ("/root", "/status:error", "/type:chain", *sorted(text.split()))
    assert hashes == tuple(sorted(hashes))
    assert set(hashes) == {
        hash_term(TermKind.NAME, "Lookup"),
        hash_term(TermKind.TAG, "a b"),
        hash_term(TermKind.MODEL, "m-2"),
        hash_term(TermKind.THREAD, "t-1"),
        *(hash_term(TermKind.METADATA_KEY, key) for key in ("thread_id", "ls_model_name", "none")),
        hash_term(TermKind.METADATA_PAIR, "thread_id", "t-1"),
        hash_term(TermKind.METADATA_PAIR, "ls_model_name", "m-2"),
        *(hash_term(TermKind.INPUT_KEY, key) for key in ("user", "user.city", "n", "ok")),
        hash_term(TermKind.INPUT_PAIR, "user.city", "Rome"),
        hash_term(TermKind.INPUT_PAIR, "n", "5"),
        hash_term(TermKind.INPUT_PAIR, "ok", "true"),
        hash_term(TermKind.OUTPUT_KEY, "list"),
        hash_term(TermKind.OUTPUT_PAIR, "list", "x"),
    }


def test_a_run_with_too_many_terms_gets_the_wildcard_term(run):
    chance = random.Random(5)
    many = [f"{chance.getrandbits(64):x}" for _ in range(MAX_TERMS)]

    terms = extract_terms(FilterSubject(run=run, inputs=json.dumps({"words": many}).encode()))

    assert terms == ((ANYTHING,), (ANY_WORD,))


def clauses(*groups):
    return [{Word(term) if isinstance(term, str) else term for term in terms} for terms in groups]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eq(name, 'a')", clauses([hash_term(TermKind.NAME, "a")])),
        (
            "in(model, ['a', 'b'])",
            clauses([hash_term(TermKind.MODEL, "a"), hash_term(TermKind.MODEL, "b")]),
        ),
        ("has(tags, 'a')", clauses([hash_term(TermKind.TAG, "a")])),
        ("eq(thread_id, 't')", clauses([hash_term(TermKind.THREAD, "t")])),
        ("exists(metadata, 'k')", clauses([hash_term(TermKind.METADATA_KEY, "k")])),
        (
            'has(metadata, \'{"k": "v", "n": 1}\')',
            clauses(
                [hash_term(TermKind.METADATA_KEY, "k")],
                [hash_term(TermKind.METADATA_KEY, "n")],
                [hash_term(TermKind.METADATA_PAIR, "k", "v")],
            ),
        ),
        (
            "and(eq(input_key, 'q'), in(input_value, ['Rome', 'Oslo fjord']))",
            clauses(
                [hash_term(TermKind.INPUT_KEY, "q")],
                [Word("rome", marks="i"), Word("fjord", marks="i")],
                [
                    hash_term(TermKind.INPUT_PAIR, "q", "Rome"),
                    hash_term(TermKind.INPUT_PAIR, "q", "Oslo fjord"),
                ],
            ),
        ),
        (
            "search('a b')",
            clauses(["a"], ["b"]),
        ),
        (
            "search('Refu* Internat* policies* of')",
            clauses(
                [Word("refu", is_prefix=True)],
                [Word("internat", is_prefix=True)],
                [Word("policies", is_prefix=True)],
                ["of"],
            ),
        ),
        ("search('ref*')", clauses([Word("ref", is_prefix=True)])),
        ("search(outputs, 'ref* a')", clauses([Word("ref", True, "o")], [Word("a", marks="o")])),
        ("search(metadata, 'a')", clauses([Word("a", marks="r")])),
        (
            "or(search('ref*'), eq(name, 'a'))",
            clauses([Word("ref", is_prefix=True), hash_term(TermKind.NAME, "a")]),
        ),
        ("search('true')", None),
        ("eq(output_value, true)", None),
        ("like(error, '%timed out%')", None),
        ("like(error, '%was timed out%')", clauses([Word("timed", marks="e")])),
        (
            "or(eq(name, 'a'), has(tags, 'b'))",
            clauses([hash_term(TermKind.NAME, "a"), hash_term(TermKind.TAG, "b")]),
        ),
        ("or(eq(name, 'a'), gt(latency, 1))", None),
        ("and(eq(name, 'a'), gt(latency, 1))", clauses([hash_term(TermKind.NAME, "a")])),
        ("neq(name, 'a')", None),
        ("not(neq(name, 'a'))", None),
        ("eq(feedback_key, 'a')", None),
        ("gt(metadata_value, 5)", None),
    ],
)
def test_a_filter_requires_the_terms_that_every_match_has(text, expected):
    terms = required_terms(parse(text))

    def in_order(clauses_found):
        return (
            None
            if clauses_found is None
            else sorted(sorted(map(str, clause)) for clause in clauses_found)
        )

    assert in_order(terms) == in_order(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("search('a')", []),
        ("eq(status, 'error')", [{"/status:error"}]),
        ("in(run_type, ['llm', 'tool'])", [{"/type:llm", "/type:tool"}]),
        ("and(eq(is_root, true), search('a'))", [{"/root"}]),
        ("eq(is_root, false)", []),
        ("in(run_type, ['llm', \"x' | 'y\"])", []),
        ("neq(status, 'error')", []),
        ("or(eq(status, 'error'), search('a'))", []),
    ],
)
def test_a_filter_requires_the_labels_that_every_match_has(text, expected):
    assert list(required_labels(parse(text))) == expected
