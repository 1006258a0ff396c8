"""The public JavaScript client on Node: each check of `javascript/` is a check here."""

from __future__ import annotations

import pytest

from tests.contract import scripts
from tests.required_tools import skip_without

pytestmark = [
    skip_without(scripts.missing()),
    # A file runs once, so all its checks belong to one worker.
    pytest.mark.xdist_group("javascript"),
]


@pytest.fixture(scope="module")
def outcomes(live, agent_url) -> dict[str, dict[str, scripts.Outcome]]:
    """What became of the checks of the files that have run."""
    return {}


@pytest.mark.parametrize(("file", "check"), scripts.checks())
def test_the_javascript_client(file, check, outcomes, live, agent_url):
    if file not in outcomes:
        outcomes[file] = {}  # so that it runs once, even if this test is interrupted
        outcomes[file] = scripts.run(file, AGENT_URL=agent_url, API_KEY=live.api_key)

    outcome = outcomes[file].get(check)

    assert outcome is not None, "it did not run"
    assert outcome.passed, outcome.error
