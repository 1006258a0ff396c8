"""The vocabulary linter finds banned words; `make check` runs it on the repository."""

from __future__ import annotations

import pytest

from tests.prose import linter
from tests.prose.linter import Exemption, Rule, Use

USE = Use("apps/x/a.py", 1, "said")
RULE = Rule("said", "the noun of the value")


@pytest.fixture(scope="module")
def rules():
    return linter.load_rules()


@pytest.mark.parametrize(
    ("path", "text", "word"),
    [
        ("apps/x/a.py", "said = 1\n", "said"),
        ("apps/x/a.py", "def f(told):\n    pass\n", "told"),
        ("apps/x/a.py", "class Voice:\n    pass\n", "Voice"),
        ("apps/x/a.py", "MOST_RUNS = 5\n", "MOST_RUNS"),
        ("apps/x/a.py", 'QUERY = "SELECT said.id FROM run AS r"\n', "said"),
        ("apps/x/a.py", 'query = f"SELECT r.id FROM {table} AS said"\n', "said"),
        ("apps/x/founding.py", "", "apps/x/founding.py"),
        ("static/js/a.js", "const said = 1;\n", "said"),
        ("templates/a.html", "{% for message in turn.said %}\n", "said"),
        ("templates/house/a.html", "", "templates/house/a.html"),
        ("docs/a.md", "Nobody may do this.\n", "Nobody"),
        (".ci/run", "said=1\n", "said"),
        ("pyproject.toml", "said = 1\n", "said"),
        ("Makefile", "said: install\n", "said"),
    ],
)
def test_banned_word_is_found(rules, path, text, word):
    assert [use.word for _, use in linter.find_uses(rules, path, text)] == [word]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("apps/x/a.py", "foundation = almost = 1\n"),
        ("apps/x/a.py", "message = 'The run was not found.'\n"),
        ("apps/x/a.py", """QUERY = "SELECT 'found' FROM run -- as found\"\n"""),
        ("static/css/a.css", "/* As found in the list. */\n"),
        ("templates/a.html", '{% translate "Not found" %}\n'),
        (".ci/run", 'echo "Chromium is not found"\n'),
    ],
)
def test_prose_and_longer_names_are_allowed(rules, path, text):
    assert list(linter.find_uses(rules, path, text)) == []


def test_use_is_reported_with_its_replacement():
    assert linter.report([(RULE, USE)], set()) == [
        "apps/x/a.py:1: said. Use the noun of the value."
    ]


def test_excepted_use_is_not_reported():
    assert linter.report([(RULE, USE)], {Exemption("apps/x/a.py", "said")}) == []


def test_exception_without_use_is_reported():
    assert linter.report([], {Exemption("apps/x/a.py", "said")}) == [
        "vocabulary.toml: apps/x/a.py no longer uses 'said': drop the exception."
    ]


def test_tests_are_not_linted():
    assert {path.partition("/")[0] for path in linter.list_files()}.isdisjoint({"tests"})
