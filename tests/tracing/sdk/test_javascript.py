"""The public JavaScript client on Node: each check of `javascript/` is a check here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import scripts
from tests.required_tools import skip_without

FOLDER = Path(__file__).with_name("javascript")

pytestmark = [
    skip_without(scripts.missing("langsmith")),
    # A file runs once, so all its checks belong to one worker.
    pytest.mark.xdist_group("sdk-javascript"),
]


@pytest.fixture(scope="module")
def outcomes(live) -> dict[str, dict[str, scripts.Outcome]]:
    """What became of the checks of the files that have run."""
    return {}


@pytest.mark.parametrize(("file", "check"), scripts.checks(FOLDER))
def test_the_javascript_client(file, check, outcomes, live):
    if file not in outcomes:
        outcomes[file] = {}  # so that it runs once, even if this test is interrupted
        outcomes[file] = scripts.run(
            file, folder=FOLDER, API_URL=live.api_url, API_KEY=live.api_key
        )

    outcome = outcomes[file].get(check)

    assert outcome is not None, "it did not run"
    assert outcome.passed, outcome.error
