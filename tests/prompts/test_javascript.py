"""Prompts by the public JavaScript client on Node: each test of `javascript/` is a test here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import scripts
from tests.required_tools import skip_without

FOLDER = Path(__file__).with_name("javascript")

pytestmark = [
    skip_without(scripts.missing_reason("langsmith")),
    # A file runs once, so all its tests belong to one worker.
    pytest.mark.xdist_group("sdk-javascript-prompts"),
]


@pytest.fixture(scope="module")
def results(live) -> dict[str, dict[str, scripts.ScriptResult]]:
    """The results of the tests of each completed file, by file and test name."""
    return {}


@pytest.mark.parametrize(("file", "check"), scripts.list_tests(FOLDER))
def test_javascript_client(file, check, results, live):
    if file not in results:
        results[file] = scripts.run_file(
            file, folder=FOLDER, API_URL=live.api_url, API_KEY=live.api_key
        )

    result = results[file].get(check)

    assert result is not None, "it did not run"
    assert result.passed, result.error
