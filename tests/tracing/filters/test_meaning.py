"""The parts of the reference evaluator: words, patterns, paths, and the terms of a run."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.trace_store import store
from apps.trace_store.filters import parse
from apps.trace_store.filters.patterns import folded, is_like, words_of
from apps.trace_store.filters.reference import matches
from apps.trace_store.filters.subjects import Pair, Subject, pairs, texts
from apps.trace_store.filters.terms import ANYTHING, MOST_TERMS, Term, term, terms_of
from apps.trace_store.filters.words import words
from apps.trace_store.store.filtering.terms import needed_terms
from tests.factories.tracing import read, stored_run

ALPHABET = st.text(alphabet="ab%_\\ AÉéß\u0130\u0131Σ\u03c3ς退\n", max_size=8)
PATTERNS = ALPHABET.filter(lambda text: (len(text) - len(text.rstrip("\\"))) % 2 == 0)


@pytest.fixture
def run(workspace):
    return read(workspace, stored_run(workspace, name="agent")).row


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
def test_words_are_runs_of_letters_and_digits_without_regard_to_case(text, expected):
    assert list(words(text)) == expected


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ALPHABET, pattern=PATTERNS)
def test_patterns_match_as_postgresql_has_them(db, text, pattern):
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT %s LIKE %s, lower(%s COLLATE "pg_c_utf8") LIKE %s',
            [text, pattern, text, folded(pattern)],
        )
        expected = cursor.fetchone()

    assert (is_like(text, pattern), is_like(folded(text), folded(pattern))) == expected


def test_a_pattern_of_many_wildcards_is_quick():
    assert not is_like("a" * 100_000, "%a" * 200 + "%b%")
    assert is_like("a" * 100_000, "%a" * 200 + "_%")


@given(ALPHABET, st.lists(st.sampled_from(["%", "_", "a", "é ", " ", "B", "\\%"]), max_size=8))
def test_words_of_a_pattern_are_words_of_what_is_like_it(text, parts):
    pattern = "".join(parts)

    if is_like(folded(text), folded(pattern)):
        assert words_of(pattern) <= set(words(text))


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
def test_whole_words_of_a_pattern_are_known(pattern, expected):
    assert words_of(pattern) == expected


def test_a_payload_is_its_paths():
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

    assert list(pairs(json.dumps(payload).encode().replace(b"1.5", b"1.50"))) == [
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
    assert list(pairs(None)) == []
    assert list(pairs(b'"text"')) == [Pair("", "text")]


def test_a_payload_may_be_as_deep_as_intake_takes():
    deep = b'{"a":' * 1000 + b'"x"' + b"}" * 1000

    assert list(texts(deep)) == ["x"]
    assert [pair for pair in pairs(deep) if pair.value] == [Pair("a" + ".a" * 999, "x")]


def test_an_error_that_is_no_text_is_its_json(run):
    one = Subject(run=replace(run, error_preview="x"), error=b'{"code": 5}')

    assert matches(parse("eq(error, '{\"code\": 5}')"), one)
    assert matches(parse("search(error, 'code 5')"), one)


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
    detail = read(workspace, run_id)
    subject = Subject(
        run=detail.row,
        inputs=detail.json(store.Payload.INPUTS),
        outputs=detail.json(store.Payload.OUTPUTS),
        error=detail.json(store.Payload.ERROR),
    )

    text = "lookup a b bad gateway rome 5 x t 1 m 2"
    assert set(terms_of(subject)) == {
        *(term(Term.WORD, word) for word in text.split()),
        term(Term.NAME, "Lookup"),
        term(Term.TAG, "a b"),
        term(Term.MODEL, "m-2"),
        term(Term.THREAD, "t-1"),
        *(term(Term.METADATA_KEY, key) for key in ("thread_id", "ls_model_name", "none")),
        term(Term.METADATA_PAIR, "thread_id", "t-1"),
        term(Term.METADATA_PAIR, "ls_model_name", "m-2"),
        *(term(Term.INPUT_KEY, key) for key in ("user", "user.city", "n", "ok")),
        term(Term.INPUT_PAIR, "user.city", "Rome"),
        term(Term.INPUT_PAIR, "n", "5"),
        term(Term.INPUT_PAIR, "ok", "true"),
        term(Term.OUTPUT_KEY, "list"),
        term(Term.OUTPUT_PAIR, "list", "x"),
    }


def test_a_run_with_too_many_terms_may_be_anything(run):
    chance = random.Random(5)
    many = [f"{chance.getrandbits(64):x}" for _ in range(MOST_TERMS)]

    assert terms_of(Subject(run=run, inputs=json.dumps({"words": many}).encode())) == [ANYTHING]


def clauses(*kinds_and_texts):
    return [{ANYTHING, *terms} for terms in kinds_and_texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eq(name, 'a')", clauses([term(Term.NAME, "a")])),
        ("in(model, ['a', 'b'])", clauses([term(Term.MODEL, "a"), term(Term.MODEL, "b")])),
        ("has(tags, 'a')", clauses([term(Term.TAG, "a")])),
        ("eq(thread_id, 't')", clauses([term(Term.THREAD, "t")])),
        ("exists(metadata, 'k')", clauses([term(Term.METADATA_KEY, "k")])),
        (
            'has(metadata, \'{"k": "v", "n": 1}\')',
            clauses(
                [term(Term.METADATA_KEY, "k")],
                [term(Term.METADATA_KEY, "n")],
                [term(Term.METADATA_PAIR, "k", "v")],
            ),
        ),
        (
            "and(eq(input_key, 'q'), in(input_value, ['Rome', 'Oslo fjord']))",
            clauses(
                [term(Term.INPUT_KEY, "q")],
                [term(Term.WORD, "rome"), term(Term.WORD, "fjord")],
                [term(Term.INPUT_PAIR, "q", "Rome"), term(Term.INPUT_PAIR, "q", "Oslo fjord")],
            ),
        ),
        ("search('a b')", clauses([term(Term.WORD, "a")], [term(Term.WORD, "b")])),
        ("search('true')", None),
        ("eq(output_value, true)", None),
        ("like(error, '%timed out%')", None),
        ("like(error, '%was timed out%')", clauses([term(Term.WORD, "timed")])),
        (
            "or(eq(name, 'a'), has(tags, 'b'))",
            clauses([term(Term.NAME, "a"), term(Term.TAG, "b")]),
        ),
        ("or(eq(name, 'a'), gt(latency, 1))", None),
        ("and(eq(name, 'a'), gt(latency, 1))", clauses([term(Term.NAME, "a")])),
        ("neq(name, 'a')", None),
        ("not(neq(name, 'a'))", None),
        ("eq(feedback_key, 'a')", None),
        ("gt(metadata_value, 5)", None),
    ],
)
def test_a_filter_needs_the_terms_without_which_it_cannot_be_true(text, expected):
    found = needed_terms(parse(text))

    def in_order(all_):
        return None if all_ is None else sorted(map(sorted, all_))

    assert in_order(found) == in_order(expected)
