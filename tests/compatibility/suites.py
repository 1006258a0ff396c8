"""Run the suites with one set of clients and count their checks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from config.env import BASE_DIR
from tests.compatibility.chosen_clients import FOLDER

SUITES = {
    "Agent Server, Python": (
        *(
            str(path.relative_to(BASE_DIR))
            for path in sorted((BASE_DIR / "tests/contract").glob("test_*.py"))
            if not path.stem.endswith(("_javascript", "_use_stream"))
        ),
        "tests/agent_server/test_python_sdk_live.py",
    ),
    "Agent Server, JavaScript": (
        "tests/contract/test_16_javascript.py",
        "tests/agent_server/test_javascript_sdk_live.py",
    ),
    "`useStream` in Chromium": ("tests/contract/test_17_use_stream.py",),
    "Tracing and feedback, Python": (
        "tests/tracing/test_live_sdk.py",
        "tests/tracing/sdk/test_python_reading.py",
        "tests/tracing/sdk/test_python_v2.py",
        "tests/feedback/test_live_feedback.py",
        "tests/ingest/otlp/test_live_exporters.py",
        "tests/ingest/otlp/test_live_conventions.py",
    ),
    "Tracing, JavaScript": ("tests/tracing/sdk/test_javascript.py",),
}
"""Each suite with its test files."""


@dataclass
class SuiteResult:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """The reasons, with how many checks each skipped."""

    def __str__(self) -> str:
        skipped = sum(self.skipped.values())
        text = f"{self.passed} of {self.passed + len(self.failed)}"
        return f"{text}, {skipped} skipped" if skipped else text


def run_suites(clients: Path, names: list[str], *options: str) -> dict[str, SuiteResult]:
    """Run the suites with the clients of the folder, on one platform."""
    files = [file for name in names for file in SUITES[name]]
    with tempfile.TemporaryDirectory(prefix="compatibility-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *files, *options]
        plugin = ["-p", "tests.compatibility.chosen_clients", f"--junitxml={report}"]
        subprocess.run(
            [*command, *plugin],
            cwd=BASE_DIR,
            env={**os.environ, FOLDER: str(clients)},
            check=False,
        )
        return count_checks(report.read_text(), names)


def count_checks(report: str, names: list[str]) -> dict[str, SuiteResult]:
    """Count the tests of a JUnit report by suite."""
    results = {name: SuiteResult() for name in names}
    # A repeated test has several cases: the last one has its result.
    cases = {
        (case.get("classname"), case.get("name")): case
        for case in ET.fromstring(report).iter("testcase")
    }
    for case in cases.values():
        # A file that cannot be imported has its name in the place of the test's.
        module = case.get("classname") or case.get("name", "")
        file = module.replace(".", "/") + ".py"
        test = f"{file}::{case.get('name')}"
        result = results[next(name for name in names if file in SUITES[name])]
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(test)
        elif (skipped := case.find("skipped")) is not None:
            result.skipped[skipped.get("message", "")] += 1
        else:
            result.passed += 1
    return results
