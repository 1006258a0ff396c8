"""Runs the official suites of MCP and A2A against a deployment of tests/conformance/project.

`make test-conformance` prints passed of how many, and fails if a scenario or test of expected.toml
does not pass. The suites are not dependencies: that of MCP comes from npm (Node 22 or later), the
A2A kit is a checkout with its own Python (`--kit`, `--kit-python`).
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx

from tests.conformance.proxy import serve

EXPECTED = Path(__file__).with_name("expected.toml")
MCP_SUITE = "npx --yes @modelcontextprotocol/conformance@0.2.0-alpha.11"
SCENARIO = re.compile(r"^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
KIT_RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED)\s+(?:\[\d+\] )?(tests/\S+)", re.MULTILINE)
KIT_FOLDERS = ("tests/mandatory/jsonrpc", "tests/mandatory/protocol")


def run_mcp(command: str, url: str, requirements: str) -> set[str]:
    """Run the suite; return the scenarios that passed."""
    arguments = ["server", "--url", f"{url}/mcp", "--requirements", requirements]
    result = subprocess.run(
        [*shlex.split(command), *arguments, "-o", "/tmp/mcp-conformance"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    rows = SCENARIO.findall(result.stdout)
    if not rows:
        sys.exit(f"The MCP suite did not run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    passed = sum(int(row[2]) for row in rows)
    total = passed + sum(int(row[3]) for row in rows)
    print(f"MCP {requirements}: {passed} of {total} checks")
    return {name for mark, name, *_ in rows if mark == "✓"}


def run_kit(python: str, kit: Path, url: str) -> set[str]:
    """Run the mandatory tests of the A2A kit; return those that passed."""
    result = subprocess.run(
        [python, "-m", "pytest", "-q", "-rA", *KIT_FOLDERS, "--sut-url", f"{url}/"],
        cwd=kit,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    rows = KIT_RESULT.findall(result.stdout)
    if not rows:
        sys.exit(f"The A2A kit did not run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    passed = {name for outcome, name in rows if outcome == "PASSED"}
    print(f"A2A kit: {len(passed)} of {len(rows)} tests (those that it skips count)")
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", required=True, help="URL of the deployment")
    parser.add_argument("--key", required=True)
    parser.add_argument("--port", type=int, default=8999)
    parser.add_argument("--mcp-suite", default=MCP_SUITE, help="the command of the MCP suite")
    parser.add_argument("--kit", type=Path, help="a checkout of the A2A kit")
    parser.add_argument("--kit-python", default=sys.executable)
    options = parser.parse_args()
    expected = tomllib.loads(EXPECTED.read_text())
    headers = {"X-Api-Key": options.key}
    search = f"{options.agent}/assistants/search"
    rows = httpx.post(search, json={"graph_id": "tck"}, headers=headers, timeout=60).json()
    missing: list[str] = []
    with serve(options.agent, options.key, rows[0]["assistant_id"], options.port) as url:
        for requirements, names in expected["mcp"].items():
            missing += sorted(set(names) - run_mcp(options.mcp_suite, url, requirements))
        if options.kit:
            missing += sorted(set(expected["a2a"]) - run_kit(options.kit_python, options.kit, url))
    if missing:
        sys.exit("These passed before:\n" + "\n".join(missing))


main()
