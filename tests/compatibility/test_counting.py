"""The figures of docs/compatibility.md are counted from pytest's report."""

from __future__ import annotations

from config.env import BASE_DIR
from tests.compatibility.chosen_clients import requires_client
from tests.compatibility.suites import SUITES, count_checks

REPORT = """<testsuites><testsuite>
<testcase classname="tests.contract.test_16_javascript" name="test_a" />
<testcase classname="tests.contract.test_16_javascript" name="test_b" />
<testcase classname="tests.contract.test_16_javascript" name="test_b"><failure/></testcase>
<testcase classname="tests.contract.test_16_javascript" name="test_c"><error>no</error></testcase>
<testcase classname="tests.contract.test_17_use_stream" name="test_d">
  <skipped message="too old">at line 1</skipped>
</testcase>
<testcase classname="tests.contract.test_17_use_stream" name="test_e" />
</testsuite></testsuites>"""
NAMES = ["Agent Server, JavaScript", "`useStream` in Chromium"]


def test_checks_are_counted_by_suite():
    """`test_b` was repeated, and failed both times."""
    scripts, pages = count_checks(REPORT, NAMES).values()

    assert str(scripts) == "1 of 3"
    assert scripts.failed == [
        "tests/contract/test_16_javascript.py::test_b",
        "tests/contract/test_16_javascript.py::test_c",
    ]
    assert str(pages) == "1 of 1, 1 skipped"
    assert pages.skipped == {"too old": 1}


def test_files_of_the_suites_exist():
    files = [file for suite in SUITES.values() for file in suite]

    assert [file for file in files if not (BASE_DIR / file).exists()] == []
    assert len(files) == len(set(files))


def test_test_of_a_newer_api_is_skipped_with_an_older_client():
    mark = requires_client("langsmith", ">=99", "time machine")

    assert mark.args == (True,)
    assert "has no time machine: it takes >=99" in mark.kwargs["reason"]
    assert requires_client("langsmith", ">=0.1", "client").args == (False,)
