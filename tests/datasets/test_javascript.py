"""Datasets by the public JavaScript client: each test of `javascript/` is a test here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import scripts
from tests.required_tools import skip_without

FOLDER = Path(__file__).with_name("javascript")

pytestmark = [
    skip_without(scripts.missing_reason("langsmith")),
    pytest.mark.xdist_group("sdk-javascript-datasets"),
]


@pytest.fixture(scope="module")
def results(live) -> dict[str, scripts.ScriptResult]:
    return scripts.run_file(
        "datasets.mjs", folder=FOLDER, API_URL=live.api_url, API_KEY=live.api_key
    )


@pytest.mark.parametrize(("file", "check"), scripts.list_tests(FOLDER))
def test_javascript_client(file, check, results):
    result = results.get(check)

    assert result is not None, "it did not run"
    assert result.passed, result.error
