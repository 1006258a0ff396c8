"""Count the checks that pass with each set of clients: `python -m tests.compatibility`.

Prints the table of docs/compatibility.md, then what failed and what was skipped. Arguments after
`--` go to pytest.
"""

from __future__ import annotations

import argparse
import sys
from typing import TextIO

from tests.compatibility.suites import SUITES, SuiteResult, run_suites
from tests.compatibility.versions import SETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility")
    parser.add_argument("--clients", nargs="*", default=[each.name for each in SETS])
    parser.add_argument("--suites", nargs="*", default=list(SUITES))
    parser.add_argument("options", nargs="*", help="options of pytest, after `--`")
    arguments = parser.parse_args()
    chosen = [each for each in SETS if each.name in arguments.clients]
    results = {
        each.name: run_suites(each.install(), arguments.suites, *arguments.options)
        for each in chosen
    }
    write_table(results, sys.stdout)
    return 1 if any(each.failed for suites in results.values() for each in suites.values()) else 0


def write_table(results: dict[str, dict[str, SuiteResult]], output: TextIO) -> None:
    """Write the checks passed of those that ran, a row for each suite, and the exceptions."""
    output.write(f"\n| suite | {' | '.join(results)} |\n|---{'|---' * len(results)}|\n")
    for suite in next(iter(results.values()), {}):
        cells = [str(suites[suite]) for suites in results.values()]
        output.write(f"| {suite} | {' | '.join(cells)} |\n")
    for clients, suites in results.items():
        for suite, result in suites.items():
            output.writelines(f"\nfailed with {clients}: {test}" for test in result.failed)
            output.writelines(
                f"\nskipped with {clients}, {suite}: {count} times {reason}"
                for reason, count in result.skipped.items()
            )
    output.write("\n")


sys.exit(main())
