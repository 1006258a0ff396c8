"""The public JavaScript client on Node: each test of `javascript/` is a test here."""

from __future__ import annotations

import pytest

from tests.contract import scripts
from tests.required_tools import skip_without

pytestmark = skip_without(scripts.missing_reason())
# A file runs once, so all its tests belong to one worker.
TESTS = [
    pytest.param(file, check, marks=pytest.mark.xdist_group(f"javascript-{file}"))
    for file, check in scripts.list_tests()
]


@pytest.fixture(scope="module")
def results(live, agent_url) -> dict[str, dict[str, scripts.ScriptResult]]:
    """The results of the tests of each completed file, by file and test name."""
    return {}


@pytest.mark.parametrize(("file", "check"), TESTS)
def test_javascript_client(file, check, results, live, agent_url):
    if file not in results:
        results[file] = scripts.run_file(file, AGENT_URL=agent_url, API_KEY=live.api_key)

    result = results[file].get(check)

    assert result is not None, "it did not run"
    assert result.passed, result.error
