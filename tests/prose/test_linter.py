"""The vocabulary linter finds banned words; `make check` runs it on the repository."""

from __future__ import annotations

import pytest

from tests.prose import linter


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
        ("static/js/a.js", "const said = 1;\n", "said"),
        ("docs/a.md", "Nobody may do this.\n", "Nobody"),
        ("docs/a.md", "The list beside it.\n", "beside"),
        ("apps/x/a.py", "def of(row):\n    pass\n", "def of("),
        ("apps/x/making.py", "", "apps/x/making.py"),
        ("templates/house/a.html", "", "templates/house/a.html"),
    ],
)
def test_banned_word_is_found(rules, path, text, word):
    assert [use.word for _, use in linter.find_uses(rules, path, text)] == [word]


def test_word_inside_another_name_is_allowed(rules):
    text = "foundation = almost = 1\n"

    assert list(linter.find_uses(rules, "apps/x/a.py", text)) == []
