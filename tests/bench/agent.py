"""`make bench`: the agent benchmark against the platform and its peers, in turn, and the targets.

The benchmark, its graphs and its list of peers are those of a folder (AGENT_BENCH or `--bench`,
default `../shared/bench/agent`). Its README says how the peers are installed; those whose variables
(`LG_VENV`, ...) are not set are left out. Every round starts each server anew, ours in a temporary
folder. `--running` measures only the running platform of `PORT` and `DATA_DIR`.

    source peers/env.sh; make bench BENCH="--rounds 3"
    make bench BENCH="--rounds 2 --peers langgraph-dev,aegra-tuned --only thread_wait,stream"
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.env import BASE_DIR, env
from tests.bench import targets
from tests.gate import run_folder
from tests.installation import COMMAND_LINE_PARTS, Installation, free_port, open_to_builds

NAME = "bench-agent"
VARIABLE = re.compile(r"\$([A-Z_]+)")
SERVER = ("web", "worker", "builder", "beat", "playground")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default_folder = os.environ.get("AGENT_BENCH") or BASE_DIR.parent / "shared/bench/agent"
    parser.add_argument("--bench", type=Path, default=default_folder)
    parser.add_argument("--out", type=Path, default=BASE_DIR / "var/bench/agent")
    parser.add_argument("--only", help="steps of the benchmark, comma-separated")
    parser.add_argument("--scale", default="1.0", help="multiplies the fixed amounts of work")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", help="their names, comma-separated; all that are installed")
    parser.add_argument("--running", action="store_true", help="measure only the running platform")
    parser.add_argument("--quiet", type=float, metavar="SHARE", help="wait for a quiet machine")
    options = parser.parse_args()
    if not (options.bench / "agent_bench.py").exists():
        sys.exit(f"No benchmark in {options.bench}; name its folder with --bench.")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    rounds, peers = load(options.bench / "rounds.py"), select_peers(options)
    extra = ["--scale", options.scale, *(["--only", options.only] if options.only else [])]
    for number in range(1, options.rounds + 1):
        measure_platform(options, number, rounds)
        for peer in peers:
            pause(options, rounds)
            try:
                rounds.one(peer, number, options.out, Path(tempfile.gettempdir()), extra)
            except Exception as failure:  # noqa: BLE001  (a failing peer must not end the benchmark)
                print(f"== {peer['name']} round {number} FAILED: {failure}", flush=True)
    names = [targets.OURS, *(peer["name"] for peer in peers)]
    reports = {name: read_reports(options.out, name) for name in names}
    print(f"\n{rounds.table(options.out, names)}\n\n{targets.format_table(reports)}")
    return 0


def measure_platform(options: argparse.Namespace, number: int, rounds: Any) -> None:
    """Measure one round of ours; the report is next to the peers' reports of `rounds`."""
    pause(options, rounds)
    print(f"== {targets.OURS} round {number}", flush=True)
    with contextlib.nullcontext() if options.running else fresh_platform():
        report = measure(options)
    (options.out / f"{targets.OURS}-r{number}.json").write_text(json.dumps(report, indent=1))


def pause(options: argparse.Namespace, rounds: Any) -> None:
    if options.quiet:
        rounds.wait_for_quiet(options.quiet, 5)


def select_peers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the selected peers whose variables are set."""
    if options.running:
        return []
    listed = json.loads((options.bench / "peers.json").read_text())["peers"]
    installed = []
    for peer in listed:
        if options.peers and peer["name"] not in options.peers.split(","):
            continue
        missing = sorted(
            name for name in set(VARIABLE.findall(json.dumps(peer))) if name not in os.environ
        )
        if missing:
            print(f"{peer['name']} is left out: {', '.join(missing)} not set", flush=True)
        else:
            installed.append(peer)
    return installed


def read_reports(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}-r[0-9]*.json"))]


@contextlib.contextmanager
def fresh_platform() -> Iterator[None]:
    """Run a new platform for the duration of the measurement."""
    with run_folder.use() as folder:
        os.environ |= {
            "DATA_DIR": str(folder / "data"),
            "PORT": str(free_port()),
            "ALLOW_FILE_GIT": "true",  # the graphs are a repository of this machine
        }
        env.cache_clear()
        platform = subprocess.Popen([sys.executable, "-m", "config.supervisor"], cwd=BASE_DIR)
        try:
            while not is_ready():
                if platform.poll() is not None:
                    sys.exit("The platform did not start.")
                time.sleep(0.2)
            yield
        finally:
            platform.terminate()
            platform.wait()


def is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"{env().base_url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def deploy_graphs(bench: Path) -> tuple[str, str]:
    """Deploy the benchmark's graphs; return the agent's address and an API key."""
    facts = manage("bootstrap", "--organization", "Bench", "--email", "bench@example.com", "--json")
    with tempfile.TemporaryDirectory(prefix="slipway-bench-git-") as folder:
        repository = commit_repository(bench / "graphs", Path(folder) / "graphs")
        deployment = manage(
            "deploy", "--organization", "Bench", "--name", NAME, "--git", str(repository),
            "--env", "LANGSMITH_TRACING=false", "--wait", "--json",
        )  # fmt: skip
    return deployment["agent_url"], facts["api_key"]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark's script against its graphs."""
    url, key = deploy_graphs(options.bench)
    result = options.out / "raw.json"
    command = [
        sys.executable, str(options.bench / "agent_bench.py"), "--label", "slipway",
        "--url", url, "--api-key", key, "--json", str(result),
        "--scale", options.scale, *(["--only", options.only] if options.only else []),
    ]  # fmt: skip
    for name, pid in find_root_processes().items():
        command += ["--pid", f"{name}={pid}"]
    subprocess.run(command, check=True)
    return merge_server_processes(json.loads(result.read_text()))


def manage(*arguments: str) -> dict[str, Any]:
    """Run a management command and return its JSON output."""
    completed = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=BASE_DIR, stdout=subprocess.PIPE, check=True
    )
    answer: dict[str, Any] = json.loads(completed.stdout)
    return answer


def commit_repository(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*identity, "commit", "-qm", "it"],
    ):
        subprocess.run(["git", "-C", str(target), *arguments], check=True)
    return open_to_builds(target)


def find_root_processes() -> dict[str, int]:
    """Return the pid of the topmost process of each role that the running platform has."""
    running = Installation(env().instance.data_dir, env().port)
    found = {role: running.find(role) for role in COMMAND_LINE_PARTS if role != "supervisor"}
    return {role: process.pid for role, process in found.items() if process is not None}


def merge_server_processes(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report in the peers' terms, where all our processes are one `server`."""
    tables = [report["cpu_s"]]
    tables += [
        result["cpu"][kind]
        for result in report["results"].values()
        if isinstance(result, dict) and result.get("cpu")
        for kind in ("ms_per_call", "cores")
    ]
    for table in tables:
        parts = [table.pop(name) for name in SERVER if name in table]
        if parts:
            table["server"] = round(sum(parts), 3)
    memory = report["memory_mib"]
    trees = [memory.pop(name) for name in SERVER if name in memory]
    if trees:
        memory["server"] = {key: round(sum(tree[key] for tree in trees), 1) for key in trees[0]}
    return report


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
