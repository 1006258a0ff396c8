"""`make test`: run the tests in phases, each with a deadline, and state what failed.

Phases run side by side, so that tests that wait leave the CPU to tests that compute. A phase in
which a test process died is repeated once as a whole; the closing lines say so. At a deadline the
stacks of all test processes, the last log lines of the platforms and the sessions of PostgreSQL are
printed.
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
from tests.gate.cpu import read_cpu_seconds
from tests.gate.phases import NAME, PHASES, SELECTED, Phase
from tests.gate.plugin import REPORT

ENDS_AT = "GATE_ENDS_AT"
"""The environment variable with the Unix time at which the gate gives up."""
LIMIT_MINUTES = 55
POLL_SECONDS = 0.5
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
    cpu_seconds: float = 0.0
    """Of its test processes and what they started, without the shared servers."""
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
    cpu_of_tests: Counter[str] = field(default_factory=Counter)

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
        self._is_collector_done = threading.Event()
        self._lock = threading.Lock()
        self._results: list[Result] = []
        self._interrupted: str | None = None
        self._check = Check(self._folder) if options.check else None
        self._phases = [SELECTED]
        if not options.paths:
            self._phases = [phase for phase in PHASES if phase.name in options.phases]
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def run(self) -> int:
        """Run the phases and print the closing lines; return the exit code."""
        if any(phase.needs_live for phase in self._phases):
            self._start_live_platform()
        threads = [
            threading.Thread(target=self._run_phase, args=(phase,)) for phase in self._phases
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self._check is not None and self._check.is_red:
                self._interrupted = self._interrupted or "make check is red"
            time.sleep(POLL_SECONDS)
        return self._close()

    def _run_phase(self, phase: Phase) -> None:
        arguments = self._arguments(phase)
        if arguments and not self._interrupted:
            self._run_with_repetition(phase, arguments)
        if phase.needs_live:
            # No other phase needs it: its scheduler and workers would compute for nothing.
            live.stop(self._folder)
        if phase is self._collector:
            self._is_collector_done.set()
        size = run_folder.read_size_gb(self._folder)
        if size > run_folder.MAX_GB:
            self._interrupted = (
                f"the tests hold {size:.0f} GB of disk, {run_folder.MAX_GB} are allowed"
            )

    @property
    def _collector(self) -> Phase:
        """The phase that collects all tests, and so finds those of the other phases."""
        return self._phases[0]

    @property
    def _is_shared(self) -> bool:
        """Whether phases run at the same time."""
        return len(self._phases) > 1

    def _arguments(self, phase: Phase) -> list[str]:
        """Return pytest's arguments, once the tests of the phase are known; empty without any."""
        if phase is SELECTED:
            paths: list[str] = self._options.paths
            return paths
        if phase is self._collector:
            return [f"--phase={phase.name}", f"--phases-to={self._collected}", "tests"]
        while not self._collected.exists() and not self._is_collector_done.wait(POLL_SECONDS):
            if self._interrupted:
                return []
        # Only the files of the phase, as importing all of them takes each process 10 s.
        files = sorted({test.partition("::")[0] for test in self._tests.get(phase.name, ())})
        return [f"--phase={phase.name}", *files] if files else []

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
        with self._lock:
            number = len(self._results)
            self._results.append(result)
        report = self._folder / f"report-{number}.jsonl"
        command = [
            sys.executable, "-m", "pytest", "-m", self._options.marks, "--maxfail=30",
            "--randomly-seed", self._options.order, f"--basetemp={self._folder / f'p{number}'}",
            *arguments,
        ]  # fmt: skip
        if phase.is_parallel:
            workers = phase.workers if self._is_shared else self._options.workers
            command += ["--numprocesses", str(workers), "--dist", "loadgroup"]
            # pytest-xdist 3.8 loses tests after it has replaced a process.
            command += ["--max-worker-restart=0"]
        print(f"\n=== {phase.name} ===", flush=True)
        began = time.monotonic()
        environment = {**os.environ, REPORT: str(report), NAME: phase.name}
        process = subprocess.Popen(
            command, cwd=BASE_DIR, env=environment, text=True,
            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        output = Output(process, phase.name if self._is_shared else "")
        deadline = min(began + phase.limit_minutes * 60, self._ends_at)
        try:
            result.exit_code = self._wait(process, deadline)
        except subprocess.TimeoutExpired:
            minutes = (time.monotonic() - began) / 60
            result.stops.append(f"the deadline: it had not ended after {minutes:.0f} min")
            result.exit_code = self._end_hanging(process)
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

    def _wait(self, process: subprocess.Popen[str], deadline: float) -> int:
        """Wait for pytest; an interrupt ends the wait like a deadline."""
        while True:
            if self._interrupted or time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(process.args, 0)
            with suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_SECONDS)

    def _end_hanging(self, process: subprocess.Popen[str]) -> int:
        """Print what every process does, let pytest print what it knows, then kill it."""
        tree = _list_test_processes(process)
        for one in tree:
            with suppress(psutil.Error):
                one.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_SECONDS)
        with self._lock:
            print_diagnosis(self._folder)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = 1
        for one in [*tree, *_list_test_processes(process)]:
            with suppress(psutil.Error):
                one.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)
        return code or 1

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = f"interrupted by {signal.Signals(number).name}"

    def _close(self) -> int:
        """Print the closing lines: per phase, then what failed, with one line of reason each."""
        print("\n=== closing lines ===")
        for result in self._results:
            _print_result(result)
        # A phase that was repeated counts by its second execution.
        final = list({result.phase.name: result for result in self._results}.values())
        planned = {phase.name for phase in self._phases}
        missing = sorted(planned - {result.phase.name for result in final})
        for name in missing:
            print(f"{name}: did not run")
        is_green = not self._interrupted and not missing
        is_green = is_green and all(result.is_green for result in final)
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
        cpu = sum((result.cpu_of_tests for result in final), Counter[str]())
        most = dict(durations.most_common(SLOWEST) + cpu.most_common(SLOWEST))
        for test in sorted(most, key=lambda test: -durations[test]):
            print(f"{durations[test]:6.1f} s, CPU {cpu[test]:5.1f} s {test}")
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
    """Passes on what pytest prints, each line after the name of its phase, and keeps the end."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._prefix = f"{name + ':':8}" if name else ""
        self._lines: deque[str] = deque(maxlen=5000)
        self._stream = process.stdout
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        assert self._stream is not None
        for line in self._stream:
            sys.stdout.write(self._prefix + line)
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


def _list_test_processes(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """pytest and its workers; programs that tests started have no handler of the signal."""
    with suppress(psutil.Error):
        main = psutil.Process(process.pid)
        return [one for one in (main, *main.children()) if _is_test_process(one)]
    return []


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
            case "cpu":
                result.cpu_seconds = entry["seconds"]
            case "stop":
                result.stops.append(entry["reason"])


def _add_test(entry: dict[str, Any], result: Result) -> None:
    test, outcome = entry["test"], entry["outcome"]
    result.durations[test] += entry["seconds"]
    result.cpu_of_tests[test] += entry["cpu"]
    if outcome == "passed":
        result.passed += entry["when"] == "call"
    else:
        name = {"rerun": "repeated", "skipped": "skipped"}.get(outcome, "failed")
        getattr(result, name).append((test, entry["reason"]))


def _print_result(result: Result) -> None:
    counts = ", ".join(f"{number} {outcome}" for outcome, number in result.counts.items())
    state = "green" if result.is_green else f"exit code {result.exit_code}"
    times = f"{result.seconds:.0f} s, CPU {result.cpu_seconds:.0f} s"
    print(f"{result.phase.name}: {counts}, {times}, {state}")
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
    parser.add_argument("--workers", default="3", help="processes of a phase that runs alone")
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
        print(f"CPU of all processes: {read_cpu_seconds():.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
