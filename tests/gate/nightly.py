"""`make test-nightly`: what `make test` leaves out, one target after the other, and one report.

The report is `REPORT.md` in the given folder, next to the output of each target. It is written anew
after each target, so a run that is ended early leaves what it knows.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.env import BASE_DIR

SUMMARY = re.compile(r"\d+ (passed|failed|error)|violations|^FAILED |^ERROR |Green after|RED after")
SUMMARY_LINES = 40


@dataclass(frozen=True)
class Target:
    """A target of the Makefile with its variables."""

    command: str
    limit_minutes: int

    @property
    def log_name(self) -> str:
        return re.sub(r"[^\w.-]+", "-", self.command) + ".log"


TARGETS = (
    Target("test-lifecycle", 60),
    Target("test-crash ROUNDS=10", 120),
    Target("test-chaos SECONDS=300 SEED=one", 30),
    Target("test-chaos SECONDS=300 SEED=two", 30),
    Target("test-chaos SECONDS=300 SEED=three", 30),
    Target("test-starvation SECONDS=60", 60),
    Target("fuzz EXAMPLES=100", 120),
    # With malicious agents, the full matrix of accessibility, and each set of the public clients.
    Target("test-long", 240),
)


@dataclass(frozen=True)
class Outcome:
    target: Target
    state: str
    minutes: float
    summary: list[str]


def run_target(target: Target, folder: Path) -> Outcome:
    log = folder / target.log_name
    began = time.monotonic()
    print(f"=== make {target.command}", flush=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", *target.command.split()], cwd=BASE_DIR, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(target.limit_minutes * 60)
            state = "green" if code == 0 else f"RED, exit code {code}"
        except subprocess.TimeoutExpired:
            state = f"RED, not ended after {target.limit_minutes} min"
        finally:
            _end(process)
    lines = log.read_text(errors="replace").splitlines()
    summary = [line.strip() for line in lines if SUMMARY.search(line)][-SUMMARY_LINES:]
    minutes = (time.monotonic() - began) / 60
    print(f"{state} after {minutes:.1f} min", *summary[-3:], sep="\n", flush=True)
    return Outcome(target, state, minutes, summary)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a target that runs, first by Ctrl-C, so that its platforms stop."""
    for number, seconds in ((signal.SIGINT, 120), (signal.SIGKILL, 60)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def write_report(folder: Path, outcomes: list[Outcome]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=BASE_DIR, capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = [f"# Nightly tests of {commit}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", ""]
    lines += ["| target | outcome | minutes |", "|---|---|---|"]
    for outcome in outcomes:
        lines.append(
            f"| `make {outcome.target.command}` | {outcome.state} | {outcome.minutes:.1f} |"
        )
    for outcome in outcomes:
        lines += ["", f"## make {outcome.target.command}", "", "```", *outcome.summary, "```"]
    (folder / "REPORT.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate.nightly", description=__doc__)
    parser.add_argument("folder", type=Path, help="for the report and the outputs")
    parser.add_argument("--only", default="", help="a part of the names of the targets to run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for target in TARGETS:
        if options.only in target.command:
            outcomes.append(run_target(target, options.folder))
            write_report(options.folder, outcomes)
    print(f"The report is {options.folder / 'REPORT.md'}")
    return 0 if outcomes and all(outcome.state == "green" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
