"""`make test`: run the tests in phases, each with a deadline, and state what failed.

A phase in which a test process died is repeated once as a whole; the closing lines say so. At a
deadline the stacks of all test processes, the last log lines of the platforms and the sessions
of PostgreSQL are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import psycopg
import pytest

from config.env import BASE_DIR
from tests import live, services
from tests.contract import deployment
from tests.gate import run_folder
from tests.gate.check import Check
from tests.gate.phases import PHASES, SELECTED, Phase
from tests.gate.plugin import REPORT

ENDS_AT = "GATE_ENDS_AT"
"""The environment variable with the Unix time at which the gate gives up."""
LIMIT_MINUTES = 55
STACKS_SECONDS = 5
STOP_SECONDS = 60
LOG_LINES = 40
DUMP_LINES = 60
IN_TESTS = re.compile(r"/tests/(?!gate/)")
SLOWEST = 10
DUMP_START = re.compile(r"^(Fatal Python error|Current thread 0x|Thread 0x|Timeout \(\d)")


@dataclass
class Result:
    """The outcome of one execution of a phase."""

    phase: Phase
    seconds: float = 0.0
    exit_code: int = 0
    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    repeated: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    dump: list[str] = field(default_factory=list)

    durations: Counter[str] = field(default_factory=Counter)
    """Seconds of each test, with its fixtures."""

    @property
    def ran(self) -> int:
        return len(self.durations)

    @property
    def counts(self) -> dict[str, int]:
        failed = len({test for test, _ in self.failed})
        return {
            "passed": self.passed,
            "failed": failed,
            "skipped": len(self.skipped),
            "repeated": len(self.repeated),
        }

    @property
    def is_green(self) -> bool:
        return self.exit_code == 0 and not self.failed and not self.deaths and not self.stops


class Gate:
    """One run of the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._started_at = time.monotonic()
        ends_at = float(os.environ.get(ENDS_AT, time.time() + LIMIT_MINUTES * 60))
        self._ends_at = self._started_at + ends_at - time.time()
        self._folder = Path(os.environ[run_folder.FOLDER])
        self._collected = self._folder / "phases.json"
        self._process: subprocess.Popen[str] | None = None
        self._results: list[Result] = []
        self._interrupted: str | None = None
        self._check = Check(self._folder) if options.check else None
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def run(self) -> int:
        """Run the phases and print the closing lines; return the exit code."""
        for phase, arguments in self._plan():
            if self._interrupted:
                break
            self._run_with_repetition(phase, arguments)
            size = run_folder.read_size_gb(self._folder)
            if size > run_folder.MAX_GB:
                self._interrupted = (
                    f"the tests hold {size:.0f} GB of disk, {run_folder.MAX_GB} are allowed"
                )
        return self._close()

    def _plan(self) -> Iterator[tuple[Phase, list[str]]]:
        """Yield each phase with pytest's arguments."""
        if self._options.paths:
            yield SELECTED, self._options.paths
            return
        chosen = [phase for phase in PHASES if phase.name in self._options.phases]
        for index, phase in enumerate(chosen):
            # One phase ahead, so that its first tests need not wait for a minute.
            if any(near.needs_live for near in chosen[index : index + 2]):
                self._start_live_platform()
            if index == 0:
                # It collects all tests, and so finds those of the other phases.
                yield phase, [f"--phase={phase.name}", f"--phases-to={self._collected}", "tests"]
            elif tests := self._tests.get(phase.name):
                # Only the files of the phase, as importing all of them takes each process 10 s.
                files = sorted({test.partition("::")[0] for test in tests})
                yield phase, [f"--phase={phase.name}", *files]

    @property
    def _tests(self) -> dict[str, list[str]]:
        """The tests of each phase, once they are collected."""
        with suppress(FileNotFoundError):
            tests: dict[str, list[str]] = json.loads(self._collected.read_text())
            return tests
        return {}

    def _start_live_platform(self) -> None:
        """Start the shared platform and its deployments in the background, unless they exist."""

        def start() -> None:
            # A test that needs the platform meets the same error and reports it.
            with suppress(Exception):
                deployment.create_shared(live.start_or_attach(self._folder, run=os.getpid()))

        threading.Thread(target=start, name="live-platform", daemon=True).start()

    def _run_with_repetition(self, phase: Phase, arguments: list[str]) -> None:
        result = self._run_pytest(phase, arguments)
        if result.deaths and not self._interrupted:
            print(f"\nA test process died; the phase {phase.name!r} is repeated.", flush=True)
            self._run_pytest(phase, arguments)

    def _run_pytest(self, phase: Phase, arguments: list[str]) -> Result:
        result = Result(phase)
        number = len(self._results)
        self._results.append(result)
        report = self._folder / f"report-{number}.jsonl"
        command = [
            sys.executable, "-m", "pytest", "-m", self._options.marks, "--maxfail=30",
            "--randomly-seed", self._options.order, f"--basetemp={self._folder / f'p{number}'}",
            *arguments,
        ]  # fmt: skip
        if phase.is_parallel:
            command += ["--numprocesses", self._options.workers, "--dist", "loadgroup"]
            # pytest-xdist 3.8 loses tests after it has replaced a process.
            command += ["--max-worker-restart=0"]
        print(f"\n=== {phase.name} ===", flush=True)
        began = time.monotonic()
        self._process = subprocess.Popen(
            command, cwd=BASE_DIR, env={**os.environ, REPORT: str(report)}, text=True,
            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        output = Output(self._process)
        deadline = min(began + phase.limit_minutes * 60, self._ends_at)
        try:
            result.exit_code = self._wait(deadline)
        except subprocess.TimeoutExpired:
            minutes = (time.monotonic() - began) / 60
            result.stops.append(f"the deadline: it had not ended after {minutes:.0f} min")
            result.exit_code = self._end_hanging(result)
        output.join()
        result.seconds = time.monotonic() - began
        _read_report(report, result)
        if result.deaths or result.stops:
            result.dump = output.find_dump()
        expected = None if phase is SELECTED else len(self._tests.get(phase.name, ()))
        if expected == 0:
            result.stops.append("its tests were not collected")
        elif expected is not None and result.exit_code == 0 and result.ran < expected:
            result.stops.append(f"only {result.ran} of {expected} tests ran")
        # No test of the named paths belongs to it, or nothing was to be collected.
        if result.exit_code == pytest.ExitCode.NO_TESTS_COLLECTED and self._options.paths:
            result.stops.append("the paths contain no test")
        return result

    def _wait(self, deadline: float) -> int:
        """Wait for pytest; an interrupt ends the wait like a deadline."""
        assert self._process is not None
        while True:
            if self._check is not None and self._check.is_red:
                self._interrupted = self._interrupted or "make check is red"
            if self._interrupted or time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self._process.args, 0)
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(1)

    def _end_hanging(self, result: Result) -> int:
        """Print what every process does, let pytest print what it knows, then kill it."""
        assert self._process is not None
        tree = self._list_test_processes()
        for process in tree:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_SECONDS)
        print_diagnosis(self._folder)
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = 1
        for process in [*tree, *self._list_test_processes()]:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        return code or 1

    def _list_test_processes(self) -> list[psutil.Process]:
        """pytest and its workers; programs that tests started have no handler of the signal."""
        assert self._process is not None
        processes = []
        with suppress(psutil.Error):
            main = psutil.Process(self._process.pid)
            candidates = [main, *main.children()]
            processes = [one for one in candidates if _is_test_process(one)]
        return processes

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = f"interrupted by {signal.Signals(number).name}"

    def _close(self) -> int:
        """Print the closing lines: per phase, then what failed, with one line of reason each."""
        print("\n=== closing lines ===")
        for result in self._results:
            _print_result(result)
        # A phase that was repeated counts by its second execution.
        final = list({result.phase.name: result for result in self._results}.values())
        is_green = not self._interrupted and all(result.is_green for result in final)
        if self._check is not None:
            is_checked = self._check.wait()
            is_green = is_green and is_checked
            print("make check:", "green" if is_checked else f"RED\n{self._check.read_output()}")
        if self._interrupted:
            print(f"Ended early: {self._interrupted}")
        for title, name in (("Skipped", "skipped"), ("Repeated", "repeated"), ("FAILED", "failed")):
            for result in final:
                for test, reason in getattr(result, name):
                    print(f"{title} {test} - {reason}")
        durations = sum((result.durations for result in final), Counter[str]())
        for test, seconds in durations.most_common(SLOWEST):
            print(f"{seconds:6.1f} s {test}")
        minutes = (time.monotonic() - self._started_at) / 60
        state = "Green" if is_green else "RED"
        print(f"{state} after {minutes:.1f} min; repeated tests:", count("repeated", final))
        print(
            f"{count('passed', final)} passed, {count('failed', final)} failed,"
            f" {count('skipped', final)} skipped",
            flush=True,
        )
        return 0 if is_green else 1


def count(outcome: str, results: list[Result]) -> int:
    return sum(result.counts[outcome] for result in results)


class Output:
    """Passes on what pytest prints, and keeps the end of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: deque[str] = deque(maxlen=5000)
        self._stream = process.stdout
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        assert self._stream is not None
        for line in self._stream:
            sys.stdout.write(line)
            sys.stdout.flush()
            self._lines.append(line.rstrip("\n"))

    def join(self) -> None:
        # A process that a test left behind may hold the pipe open.
        self._thread.join(5)

    def find_dump(self) -> list[str]:
        """Return a crash's message and the stacks that are in tests, for the closing lines."""
        dump: list[str] = []
        block: list[str] = []
        for line in [*self._lines, ""]:
            if DUMP_START.match(line) or not line.startswith("  "):
                is_crash = bool(block) and block[0].startswith("Fatal Python error")
                if is_crash or any(IN_TESTS.search(text) for text in block):
                    dump += block
                block = [line] if DUMP_START.match(line) else []
            elif block:
                block.append(line)
        return dump[:DUMP_LINES]


def _is_test_process(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()
        return any("pytest" in word or "execnet" in word for word in words)
    return False


def _read_report(path: Path, result: Result) -> None:
    if not path.exists():
        result.stops.append("pytest wrote no report")
        return
    for line in path.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        match entry.pop("kind"):
            case "test":
                _add_test(entry, result)
            case "death":
                result.deaths.append(f"{entry['process']}: {entry['reason']}")
            case "stop":
                result.stops.append(entry["reason"])


def _add_test(entry: dict[str, Any], result: Result) -> None:
    test, outcome = entry["test"], entry["outcome"]
    result.durations[test] += entry["seconds"]
    if outcome == "passed":
        result.passed += entry["when"] == "call"
    else:
        name = {"rerun": "repeated", "skipped": "skipped"}.get(outcome, "failed")
        getattr(result, name).append((test, entry["reason"]))


def _print_result(result: Result) -> None:
    counts = ", ".join(f"{number} {outcome}" for outcome, number in result.counts.items())
    state = "green" if result.is_green else f"exit code {result.exit_code}"
    print(f"{result.phase.name}: {counts}, {result.seconds:.0f} s, {state}")
    for death in result.deaths:
        print(f"  a test process died: {death}")
    for stop in result.stops:
        print(f"  stopped: {stop}")
    for line in result.dump:
        print(f"  | {line}")


def print_diagnosis(folder: Path) -> None:
    """Print the last log lines of each platform of the run and the sessions of PostgreSQL."""
    for log in sorted(folder.glob("**/logs/*.log")):
        print(f"--- last lines of {log.relative_to(folder)}")
        with suppress(OSError):
            print("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
    print("--- sessions of the tests' PostgreSQL")
    try:
        with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=5) as connection:
            rows = connection.execute(
                "SELECT datname, pid, state, wait_event, now() - query_start, left(query, 200)"
                " FROM pg_stat_activity WHERE backend_type = 'client backend'"
            )
            for row in rows:
                print(*row, sep=" | ")
    except psycopg.Error as error:
        print(f"not readable: {error}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("paths", nargs="*", help="tests to run in one phase instead of all")
    names = [phase.name for phase in PHASES]
    parser.add_argument("--phases", default=",".join(names), help=f"default: {','.join(names)}")
    parser.add_argument(
        "--fast", action="store_true", help="leave out tests with hundreds of generated inputs"
    )
    parser.add_argument("--check", action="store_true", help="run `make check` as well")
    parser.add_argument("--workers", default="3", help="processes of a parallel phase")
    parser.add_argument("--order", default="20261122", help="the seed of the tests' order")
    options = parser.parse_args()
    options.phases = options.phases.split(",")
    options.marks = "not slow and not exhaustive" if options.fast else "not slow"
    if unknown := set(options.phases) - set(names):
        parser.error(f"unknown phases: {', '.join(sorted(unknown))}")
    try:
        return Gate(options).run()
    finally:
        services.stop()


if __name__ == "__main__":
    sys.exit(main())
