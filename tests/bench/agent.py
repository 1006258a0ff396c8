"""`make bench`: the agent benchmark against the running platform, beside the peers' figures.

The benchmark and the recorded figures are those of the folder `bench/agent` of the shared material
(`--bench`, default `../shared/bench/agent`). The platform is the one of `PORT` and `DATA_DIR`;
where none answers, one is started in a temporary folder and stopped again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
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
from tests.installation import SIGNS, Installation

NAME = "bench-agent"
SERVER = ("web", "worker", "builder", "beat")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, default=BASE_DIR.parent / "shared/bench/agent")
    parser.add_argument("--out", type=Path, default=BASE_DIR / "var/bench/agent")
    parser.add_argument("--only", help="steps of the benchmark, comma-separated")
    parser.add_argument("--scale", default="1.0", help="multiplies the fixed amounts of work")
    options = parser.parse_args()
    if not (options.bench / "agent_bench.py").exists():
        sys.exit(f"No benchmark in {options.bench}; name its folder with --bench.")
    with running_platform():
        report = measure(options)
    shutil.copytree(options.bench / "results", options.out, dirs_exist_ok=True)
    (options.out / "slipway-r1.json").write_text(json.dumps(report, indent=1))
    rounds = load(options.bench / "rounds.py")
    names = ["slipway", *(peer["name"] for peer in load_peers(options.bench))]
    print()
    print(rounds.table(options.out, names))
    print("\nThe peers' figures were recorded on another day: compare ratios with care.")
    return 0


@contextlib.contextmanager
def running_platform() -> Iterator[None]:
    """The platform that answers already, or one of its own for the time of the measurement."""
    if is_ready():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as folder:
        os.environ["DATA_DIR"] = folder
        env.cache_clear()
        print("No platform answers; starting one for the measurement", flush=True)
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


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Deploy the benchmark's graphs and run its script against them."""
    facts = manage("bootstrap", "--organization", "Bench", "--email", "bench@example.com", "--json")
    with tempfile.TemporaryDirectory(prefix="slipway-bench-git-") as folder:
        repository = repository_of(options.bench / "graphs", Path(folder) / "graphs")
        deployed = manage(
            "deploy", "--organization", "Bench", "--name", NAME, "--git", str(repository),
            "--env", "LANGSMITH_TRACING=false", "--wait", "--json",
        )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    result = options.out / "raw.json"
    command = [
        sys.executable, str(options.bench / "agent_bench.py"), "--label", "slipway",
        "--url", deployed["agent_url"], "--api-key", facts["api_key"], "--json", str(result),
        "--scale", options.scale, *(["--only", options.only] if options.only else []),
    ]  # fmt: skip
    for name, pid in roots().items():
        command += ["--pid", f"{name}={pid}"]
    subprocess.run(command, check=True)
    return with_one_server(json.loads(result.read_text()))


def manage(*words: str) -> dict[str, Any]:
    """A management command's JSON."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=BASE_DIR, stdout=subprocess.PIPE, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def repository_of(folder: Path, into: Path) -> Path:
    shutil.copytree(folder, into)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-qm", "it"]):
        subprocess.run(["git", "-C", str(into), *words], check=True)
    return into


def roots() -> dict[str, int]:
    """The topmost process of each role of the running instance."""
    running = Installation(env().instance.data_dir, env().port)
    return {role: running.one(role).pid for role in SIGNS if role != "supervisor"}


def with_one_server(report: dict[str, Any]) -> dict[str, Any]:
    """The report in the peers' terms: web, worker and the rest are one `server` there."""
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


def load_peers(bench: Path) -> list[dict[str, Any]]:
    peers: list[dict[str, Any]] = json.loads((bench / "peers.json").read_text())["peers"]
    return peers


if __name__ == "__main__":
    sys.exit(main())
