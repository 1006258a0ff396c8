"""`make test-starvation`: each attack for a minute, twelve minutes in all on a quiet machine.

SECONDS and ATTACKS choose less. The phase after an attack is the one before the next. Exits with 1
if a throughput fell below 80 % of the one before, or acknowledged runs are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace

from tests.starvation.attacks import ATTACKS
from tests.starvation.trial import MIN_SHARE, Trial, TrialLength, running_trial

HEAD = (
    "| attack | phase | ingested runs/s | ingest p95 ms | agent runs/s | agent p95 ms"
    " | failures |\n"
    "|---|---|---|---|---|---|---|"
)


async def run_all(trial: Trial, names: list[str], length: TrialLength) -> list[str]:
    """Run the attacks in turn, print their figures and return what missed the target."""
    missed = []
    before = None
    print(HEAD, flush=True)
    for name in names:
        result = await trial.run(name, length, before)
        before = replace(result.phases[-1], name="before")
        print("\n".join(result.rows()), flush=True)
        print(f"  the attacker's answers: {result.attacker}", flush=True)
        for phase in result.phases:
            print("".join(f"  failure: {text}\n" for text in phase.failures[:3]), end="")
        missed += [
            f"{name}: {share:.0%} of the throughput before: {figure}"
            for figure, share in result.shares.items()
            if share < MIN_SHARE
        ]
    lost = await trial.count_lost()
    print(f"acknowledged runs: {len(trial.victim.acknowledged)}, lost: {lost}", flush=True)
    return [*missed, *([f"{lost} acknowledged runs are lost"] if lost else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each attack")
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="comma-separated")
    options = parser.parse_args()
    quiet = max(4.0, options.seconds / 8)
    length = TrialLength(before=quiet, during=options.seconds, after=quiet)
    with running_trial() as trial:
        missed = asyncio.run(run_all(trial, options.attacks.split(","), length))
    print("\n".join(missed) or "every target is met")
    return 1 if missed else 0


sys.exit(main())
