"""Runs the official suites of MCP and A2A against a deployment of tests/conformance/project.

`make test-conformance` prints passed of how many, beside the reference servers of the SDKs, and
fails if a scenario or test of expected.toml does not pass. The suites are not dependencies: that of
MCP comes from npm, the A2A kit (branch 1.0-dev) is a checkout with its own Python (`--kit`,
`--kit-python`), and so is the reference server of MCP (`--mcp-sdk`: a checkout of its Python SDK).
That of A2A is tests/conformance/reference.py. Without `--agent` the run starts a platform.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.conformance.proxy import serve
from tests.contract.deployment import commit
from tests.installation import Installation, free_port, wait_until

EXPECTED = Path(__file__).with_name("expected.toml")
PROJECT = Path(__file__).with_name("project")
MCP_SUITE = "npx --yes @modelcontextprotocol/conformance@0.2.0-alpha.11"
EVERYTHING_SERVER = Path("examples/servers/everything-server")
SCENARIO = re.compile(r"^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
KIT_RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (?:\[(\d+)\] )?(\S+)", re.MULTILINE)


class Score(NamedTuple):
    """The result of a suite: `passed` are the names of tests or scenarios."""

    passed: set[str]
    text: str


def run_mcp(command: str, url: str, requirements: str) -> Score:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["server", "--url", f"{url}/mcp", "--requirements", requirements]
        result = subprocess.run(
            [*shlex.split(command), *arguments, "-o", folder],
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
    names = {name for mark, name, *_ in rows if mark == "✓"}
    return Score(names, f"{passed} of {total} checks, {len(names)} of {len(rows)} scenarios")


def run_kit(python: str, kit: Path, url: str) -> Score:
    """Run the A2A kit over JSON-RPC and HTTP+JSON; gRPC is not offered."""
    result = subprocess.run(
        [python, "-m", "pytest", "-q", "-rA", "--tb=no", "tests/compatibility", "--sut-host", url],
        cwd=kit,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    rows = KIT_RESULT.findall(result.stdout)
    if not rows:
        sys.exit(f"The A2A kit did not run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    passed = {name for outcome, _, name in rows if outcome == "PASSED"}
    failed = sum(outcome in {"FAILED", "ERROR", "XFAIL"} for outcome, *_ in rows)
    skipped = sum(int(count or 1) for outcome, count, _ in rows if outcome == "SKIPPED")
    return Score(
        passed, f"{len(passed)} of {len(passed) + failed} tests, {skipped} others do not apply"
    )


@contextmanager
def run_server(command: list[str], url: str, **environment: str) -> Iterator[str]:
    """A server of this machine, once it answers at the URL."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=None
    )

    def answers() -> bool:
        assert process.poll() is None, f"{command} has ended"
        try:
            return bool(httpx.get(url, timeout=10).status_code)
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, url)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def start_platform() -> Iterator[tuple[str, str]]:
    """A platform with a deployment of the project; yields the agent's address and a key."""
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder) / "data", ALLOW_LOCAL_WEBHOOKS="true")
        installation.start()
        try:
            installation.wait_until_ready()
            commit(PROJECT, Path(folder) / "project")
            agent = installation.deploy("conformance", Path(folder) / "project")
            yield agent, installation.bootstrap()["api_key"]
        finally:
            installation.end()


def compare(suite: str, ours: Score, reference: Score | None, names: list[str]) -> list[str]:
    """Print both results; return the expected names that did not pass."""
    print(f"{suite}: {ours.text}", flush=True)
    if reference is not None:
        print(f"{' ' * len(suite)}  the SDK's server: {reference.text}")
        for name in sorted(reference.passed - ours.passed):
            print(f"{' ' * len(suite)}  the SDK's server alone passes {name}")
    return sorted(set(names) - ours.passed)


def run_suites(options: argparse.Namespace, agent: str, key: str) -> list[str]:
    """Run all suites; return what did not pass although it is expected to."""
    expected = tomllib.loads(EXPECTED.read_text())
    headers = {"X-Api-Key": key}
    search = f"{agent}/assistants/search"
    rows = httpx.post(search, json={"graph_id": "tck"}, headers=headers, timeout=60).json()
    missing: list[str] = []
    with serve(agent, key, rows[0]["assistant_id"], options.port) as url:
        for requirements, names in expected["mcp"].items():
            ours, reference = run_mcp(options.mcp_suite, url, requirements), None
            if options.mcp_sdk:
                folder, port = options.mcp_sdk / EVERYTHING_SERVER, free_port()
                command = [sys.executable, "-m", "mcp_everything_server", "--port", str(port)]
                address = f"http://localhost:{port}"
                with run_server(command, address, PYTHONPATH=str(folder.resolve())):
                    reference = run_mcp(options.mcp_suite, address, requirements)
            missing += compare(f"MCP {requirements}", ours, reference, names)
        if options.kit:
            ours = run_kit(options.kit_python, options.kit, url)
            port = free_port()
            command = [sys.executable, "-m", "tests.conformance.reference", str(port)]
            with run_server(command, f"http://localhost:{port}") as address:
                reference = run_kit(options.kit_python, options.kit, address)
            missing += compare("A2A kit", ours, reference, expected["a2a"])
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", help="URL of a deployment of the project")
    parser.add_argument("--key", help="a key that may run the deployment")
    parser.add_argument("--port", type=int, default=8999)
    parser.add_argument("--mcp-suite", default=MCP_SUITE, help="the command of the MCP suite")
    parser.add_argument("--mcp-sdk", type=Path, help="a checkout of MCP's Python SDK")
    parser.add_argument("--kit", type=Path, help="a checkout of the A2A kit")
    parser.add_argument("--kit-python", default=sys.executable)
    options = parser.parse_args()
    started_at = time.monotonic()
    if options.agent:
        missing = run_suites(options, options.agent, options.key)
    else:
        with start_platform() as (agent, key):
            missing = run_suites(options, agent, key)
    print(f"{time.monotonic() - started_at:.0f} seconds")
    if missing:
        sys.exit("These passed before:\n" + "\n".join(missing))


main()
