"""A pytest plugin: phases, deadlines, repetitions, and a report that the gate reads.

The report has one JSON object a line, with `kind` "test" (a set-up, call or tear-down), "death" (of
a process of pytest-xdist), "stop" (the phase ended early) or "cpu" (at its end). Times are in
seconds of the clock, `cpu` in seconds of CPU of the test's process and its ended children.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gate.cpu import read_cpu_seconds
from tests.gate.phases import KILLS, PHASES, find_phase

REPORT = "SLIPWAY_GATE_REPORT"
"""The environment variable with the report's path."""
MAX_TIMEOUTS = 3
"""After this number of timed-out tests the phase stops: the rest would wait as long."""
TIMEOUT_MESSAGE = "from pytest-timeout"
REPEATED_MARKS = ("live", "integration", "lifecycle", "browser")
TIMEOUT_SECONDS = {"lifecycle": 420, **dict.fromkeys(("live", "integration", "browser"), 360)}
TIMEOUT_SECONDS["exhaustive"] = 360
"""Deadlines of tests that start platforms, build agents or call every route; others have 180 s."""
KILLS_SECONDS = 540
"""Of the phase `kills`, whose first test also starts a platform and deploys agents."""
FIRST_WORKER = "gw0"
COLLECTION_SECONDS = 300
_REASON_LENGTH = 200
_MEMBER = "Exception ignored in"


@dataclass
class _Cpu:
    """The CPU seconds of this process that reports have counted."""

    reported: float = 0.0


_cpu = _Cpu()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("slipway")
    group.addoption("--phase", choices=[phase.name for phase in PHASES], help="run one phase")
    group.addoption("--phases-to", type=Path, help="write the tests of each phase as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    _cpu.reported = read_cpu_seconds()
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    # The gate sends this signal at a deadline. Capturing is off while pytest is configured.
    faulthandler.register(signal.SIGUSR1, file=os.dup(2), all_threads=True)
    if "PYTEST_XDIST_WORKER" not in os.environ and REPORT in os.environ:
        config.pluginmanager.register(Reporter(config, Path(os.environ[REPORT])), "gate-reporter")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect after the first process: it compiles the tests of a new checkout for the others.

    Compiling takes as long as importing what is compiled. Nothing collected is garbage.
    """
    path = session.config.getoption("--phases-to")
    deadline = time.monotonic() + COLLECTION_SECONDS
    if path is not None and _worker() != FIRST_WORKER:
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def _worker() -> str:
    """The name of this process of pytest-xdist; the first one's without pytest-xdist."""
    return os.environ.get("PYTEST_XDIST_WORKER", FIRST_WORKER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _set_deadline_and_repetition(item)
        _check_group(config, item)
    path, phase_name = config.getoption("--phases-to"), config.getoption("--phase")
    # All processes of pytest-xdist collect the same tests.
    if path is not None and _worker() == FIRST_WORKER:
        tests: dict[str, list[str]] = {phase.name: [] for phase in PHASES}
        for item in items:
            tests[find_phase(item).name].append(item.nodeid)
        # The gate waits for the file: it appears with its whole content.
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(tests))
        draft.rename(path)
    if phase_name is not None:
        others = [item for item in items if find_phase(item).name != phase_name]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if find_phase(item).name == phase_name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the CPU time since the previous report of this process."""
    report = yield
    now = read_cpu_seconds()
    report.cpu_seconds = now - _cpu.reported
    _cpu.reported = now
    return report


def _check_group(config: pytest.Config, item: pytest.Item) -> None:
    """Fail if pytest-xdist has not seen the group of a test, which it would send to any process."""
    is_grouped = item.get_closest_marker("xdist_group") is not None
    is_distributed = getattr(config.option, "loadgroup", False)
    if is_distributed and is_grouped and "@" not in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid}: its xdist_group was added too late")


def _set_deadline_and_repetition(item: pytest.Item) -> None:
    marks = {mark.name for mark in item.iter_markers()}
    if "timeout" not in marks:
        seconds = [TIMEOUT_SECONDS[name] for name in marks & TIMEOUT_SECONDS.keys()]
        if find_phase(item) is KILLS:
            seconds.append(KILLS_SECONDS)
        if seconds:
            item.add_marker(pytest.mark.timeout(max(seconds)))
    # Unit and API tests depend on nothing that a repetition could excuse.
    if marks.intersection(REPEATED_MARKS):
        item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=[TIMEOUT_MESSAGE]))


class Reporter:
    """Writes the report, and stops a phase in which test after test runs into its deadline."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._path = config, path
        self._timeouts = 0
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def _write(self, **fields: Any) -> None:
        with self._path.open("a") as report:
            report.write(json.dumps(fields) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reason = "" if report.passed else _find_reason(report)
        self._write(
            kind="test",
            outcome=report.outcome,
            test=report.nodeid,
            when=report.when,
            seconds=round(report.duration, 3),
            cpu=round(getattr(report, "cpu_seconds", 0.0), 3),  # none of a process that died
            reason=reason,
        )
        if report.failed and TIMEOUT_MESSAGE in reason:
            self._timeouts += 1
            if self._timeouts >= MAX_TIMEOUTS:
                self._stop(f"{self._timeouts} tests ran into their deadline")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(
                kind="test",
                outcome="failed",
                test=report.nodeid,
                when="collect",
                seconds=0.0,
                cpu=0.0,
                reason=_find_reason(report),
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error:
            self._write(kind="death", process=node.gateway.id, reason=str(error))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        # The processes of pytest-xdist have ended, so their CPU time is known.
        self._write(kind="cpu", seconds=round(read_cpu_seconds(), 1))

    def _stop(self, reason: str) -> None:
        self._write(kind="stop", reason=reason)
        distributed = self._config.pluginmanager.getplugin("dsession")
        if distributed is not None:
            distributed.shouldstop = reason
        elif self._session is not None:
            self._session.shouldstop = reason


def _find_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the error, or of the reason of a skip."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):
        text = str(longrepr[2])
    else:
        crash = getattr(longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "ExceptionGroup" in lines[0]:
        # Its message counts what is in it: objects that were not closed, for instance.
        lines = [line.strip("| ") for line in str(longrepr).splitlines() if _MEMBER in line] + lines
    return lines[0][:_REASON_LENGTH] if lines else ""
