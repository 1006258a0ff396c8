"""What functions may return, and what their source may be."""

from __future__ import annotations

import pytest

from apps.evaluators.code.checks import MAX_CODE_BYTES, check_code, check_language
from apps.evaluators.code.results import read_result
from apps.evaluators.errors import BadCodeResult, BadEvaluator
from apps.evaluators.scoring import Score


@pytest.mark.parametrize(
    ("result", "scores"),
    [
        (True, [Score("Exact", score=1.0)]),
        (0.25, [Score("Exact", score=0.25)]),
        ("polite", [Score("Exact", value="polite")]),
        ({"score": 0}, [Score("Exact", score=0.0)]),
        ({"key": "tone", "value": "kind"}, [Score("tone", value="kind")]),
        ({"key": "tone", "value": 3}, [Score("tone", score=3.0)]),
        (
            {"key": "tone", "score": 0.5, "value": "mixed", "comment": "Because.", "extra": None},
            [Score("tone", score=0.5, value="mixed", comment="Because.")],
        ),
        (
            {"correctness": 1, "silliness": False, "comment": "Fine.", "absent": None},
            [
                Score("correctness", score=1.0, comment="Fine."),
                Score("silliness", score=0.0, comment="Fine."),
            ],
        ),
        (
            [{"key": "a", "score": 1}, {"b": "x"}],
            [Score("a", score=1.0), Score("b", value="x")],
        ),
        ({"results": [{"key": "a", "score": True}]}, [Score("a", score=1.0)]),
        ({"comment": "c" * 60_000, "a": 1}, [Score("a", score=1.0, comment="c" * 50_000)]),
    ],
)
def test_forms_of_the_sdk_and_of_the_hosted_product_are_scores(result, scores):
    assert read_result(result, "Exact") == scores


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "returned None"),
        ({}, "no score"),
        ([], "no score"),
        ({"results": []}, "no score"),
        ({"comment": "only"}, "no score"),
        ({"key": "a"}, "no score of `a`"),
        ({"key": 3, "score": 1}, "A feedback key is a text"),
        ({"key": "a" * 5_000, "score": 1}, "A feedback key is a text"),
        ({"key": "a", "score": "high"}, "return it as `value`"),
        ({"key": "a", "score": 1, "value": {}}, "next to a score must be a text"),
        ({"key": "a", "value": {}}, "neither a number nor a text"),
        ({"key": "a", "score": 1, "correction": {"x": 1}}, "`correction`, which is not supported"),
        ({"key": "a", "score": 1, "comment": 5}, "The comment of `a` must be a text"),
        ({"a": [1]}, "`a` is neither a number nor a text"),
        ({"a": 1e101}, "larger than"),
        ({"": 1}, "A feedback key is a text"),
        ([{"key": "a", "score": 1}] * 2, "two scores of the key `a`"),
        ([[{"a": 1}]], "whose items are not objects"),
        ([1, 2], "whose items are not objects"),
        ({f"k{n}": 1 for n in range(21)}, "more than 20 scores"),
        ([{"key": f"k{n}", "score": 1} for n in range(5_000)], "more than 20 scores"),
        ({"results": [], "more": 1}, "`more`, which is not supported"),
    ],
)
def test_other_results_are_refused_with_the_reason(result, text):
    with pytest.raises(BadCodeResult, match=text):
        read_result(result, "Exact")


@pytest.mark.parametrize(
    ("code", "keys"),
    [
        ("def perform_eval(run):\n return {'a': 1, 'comment': ''}", ["a"]),
        ("def perform_eval(run, example):\n return {'key': 'b', 'score': 1}", ["b"]),
        ("def perform_eval(run, example=None):\n return {'score': 1}", ["Exact"]),
        ("async def perform_eval(*items):\n return 1", ["Exact"]),
        ("def perform_eval(run):\n return [{'key': 'a', 'score': 1}, {'c': 2}]", ["a", "c"]),
        ("def perform_eval(run):\n return {'results': [{'key': 'a', 'score': 1}]}", ["a"]),
        ("def perform_eval(run):\n if run: return {'a': 1}\n return {'b': 1}", ["a", "b"]),
        ("def perform_eval(run):\n return dict(a=1)", []),
    ],
)
def test_source_shows_its_feedback_keys(code, keys):
    assert check_code(code, "Exact") == keys


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "must define `def perform_eval"),
        ("def other(run): ...", "must define `def perform_eval"),
        ("def perform_eval(): ...", "must take `run`"),
        ("def perform_eval(a, b, c): ...", "must take `run`"),
        ("def perform_eval(run, *, name): ...", "must take `run`"),
        ("def perform_eval(run)\n  return 1", "line 1: expected ':'"),
        ("x = 1\0", "null bytes|not valid Python"),
        ("function performEval(run) { return 1 }", "line 1: invalid syntax"),
        ("x = " + "-" * 50_000 + "1", "not valid Python"),
        ("#" * (MAX_CODE_BYTES + 1), "more than 65,536 bytes"),
    ],
)
def test_source_that_cannot_work_is_refused_with_the_reason(code, text):
    with pytest.raises(BadEvaluator, match=text):
        check_code(code, "Exact")


def test_other_languages_are_refused_by_name():
    with pytest.raises(BadEvaluator, match="`javascript` are not supported"):
        check_language("javascript")
