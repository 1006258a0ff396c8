"""Ingest rate of runs, compared with the machine's limit and with other servers.

`python -m tests.bench.traces --bench-dir FOLDER` starts a new installation and runs the
scripts of the tracing benchmark in that folder (`floor.py`, `ingest_bench.py`, `rounds.py`) against
it. The floor is measured by the installation's own PostgreSQL, before the load and after it. The
peers take part where `PHOENIX_VENV` or `MLFLOW_VENV` (and `PG_BIN`, `PG_DATA`, `PG_PORT`) are set.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from apps.core.instance import DATABASE, Instance
from config.embedded.postgres import SUPERUSER
from tests.gate import run_folder
from tests.installation import COMMAND_LINE_PARTS, Installation, wait_until

WIRES = ("multipart", "multipart-zstd", "batch", "otlp")
FLOOR = "day partitions and 5 indexes, 100 rows a transaction, 4 connections"
PEERS = {
    "PHOENIX_VENV": ("phoenix-sqlite", "phoenix-postgres"),
    "MLFLOW_VENV": ("mlflow-postgres",),
}
WATCHED = ("web", "postgres", "worker", "redis")
MIN_FLOOR_RATIO, MIN_STORED_RATIO, MIN_ACKNOWLEDGED_RATIO = 0.5, 20.0, 3.5
"""Our rate divided by the floor's, by the best peer's stored rate and by its acknowledged rate."""
MAX_TRANSACTION_RATIO = 2.5
"""The p95 of acknowledgements with 4 clients, divided by the floor's transaction p50."""
Report = dict[str, Any]


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    with run_folder.use() as folder:
        options.spool = options.spool or folder / "spool"
        settings: dict[str, Any] = {"WEB_PROCESSES": "2"} | dict(options.set)
        platform = Installation(folder / "x", **settings)
        platform.start()
        platform.wait_until_ready()
        try:
            key = platform.bootstrap()["api_key"]
            wait_until(lambda: not _is_deploying(platform), "the end of the sample's deployment")
            floors = [_floor(options, platform, "before")]
            reports = [
                _ingest(options, platform, key, wire, clients)
                for wire in options.wires
                for clients in options.clients
            ]
            floors.append(_floor(options, platform, "after"))
        finally:
            platform.stop()
    peers = _peers(options)
    _print(reports, floors, peers)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--bench-dir", type=Path, default=os.environ.get("BENCH_DIR"))
    add("--wires", type=lambda text: text.split(","), default=list(WIRES))
    add("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16])
    add("--seconds", type=float, default=60)
    add("--runs", type=int, default=400_000, help="runs to encode; more than --seconds take")
    add("--floor-runs", type=int, default=50_000)
    add("--drain", type=float, default=30, help="how long a peer may store after its load")
    add(
        "--set",
        help="a setting, NAME=VALUE, besides WEB_PROCESSES=2",
        type=lambda text: text.split("=", 1),
        action="append",
        default=[],
    )
    add("--until", default=f"{datetime.now(UTC):%Y-%m-%dT%H:00:00}", help="the newest trace's time")
    add("--spool", type=Path, help="where clients keep what they send; default: the run's folder")
    add("--out", type=Path, default=Path(tempfile.gettempdir()) / "trace-bench-results")
    add("--verify", choices=("langsmith", "langsmith-query"), default="langsmith")
    options = parser.parse_args()
    if options.bench_dir is None:
        parser.error("--bench-dir (or BENCH_DIR) names the folder of the benchmark's scripts")
    return options


def _floor(options: argparse.Namespace, platform: Installation, when: str) -> Report:
    out = options.out / f"floor-{when}.json"
    _run(
        options, "floor.py", "--dsn", _dsn(platform, SUPERUSER), "--runs", options.floor_runs,
        "--repeat", 1, "--pid", f"postgres={platform.require_process('postgres').pid}",
        "--json", out,
    )  # fmt: skip
    report: Report = json.loads(out.read_text())
    return report


def _is_deploying(platform: Installation) -> bool:
    """Whether the new installation still builds its sample agent, which disturbs measurements."""
    try:
        return any("deploy_sample" in process.cmdline() for process in platform.processes())
    except psutil.NoSuchProcess:  # a process ended meanwhile: check again
        return True


def _ingest(
    options: argparse.Namespace, platform: Installation, key: str, wire: str, clients: int
) -> Report:
    out = options.out / f"slipway-{wire}-c{clients}.json"
    watched = [word for name, pid in _pids(platform) for word in ("--pid", f"{name}={pid}")]
    _run(
        options, "ingest_bench.py", "--url", platform.url, "--api-key", key, "--wire", wire,
        "--clients", clients, "--seconds", options.seconds, "--runs", options.runs,
        "--project", f"{wire}-{clients}", "--until", options.until, "--spool", options.spool,
        "--verify", options.verify,
        "--sql", _dsn(platform, DATABASE), "--label", "slipway", "--json", out, *watched,
    )  # fmt: skip
    report: Report = json.loads(out.read_text())
    return report


def _pids(platform: Installation) -> list[tuple[str, int]]:
    """Return the names and pids of the watched processes; web processes are numbered."""
    pids_by_name = []
    for role in WATCHED:
        candidates = [
            p for p in platform.processes() if COMMAND_LINE_PARTS[role] in " ".join(p.cmdline())
        ]
        ids = {process.pid for process in candidates}
        # Launchers have the same text in their command lines: use the leaves.
        leaves = [p for p in candidates if not ids & {child.pid for child in p.children()}]
        names = [role if n == 0 else f"{role}{n + 1}" for n in range(len(leaves))]
        tops = [_top(leaf, ids) for leaf in leaves] if role == "postgres" else leaves
        pids_by_name += list(zip(names, sorted({top.pid for top in tops}), strict=False))
    return pids_by_name


def _top(process: psutil.Process, ids: set[int]) -> psutil.Process:
    while (parent := process.parent()) is not None and parent.pid in ids:
        process = parent
    return process


def _dsn(platform: Installation, user: str) -> str:
    folder = Instance(platform.data_dir).socket_dir
    return f"host={folder} user={user} dbname={DATABASE}"


def _peers(options: argparse.Namespace) -> list[Report]:
    names = [name for venv, them in PEERS.items() if os.environ.get(venv) for name in them]
    if not names:
        return []
    out = options.out / "peers"
    out.mkdir(exist_ok=True)
    _run(
        options, "rounds.py", options.bench_dir / "peers.json", "--steps", "ingest",
        "--rounds", 1, "--only", ",".join(names), "--seconds", options.seconds,
        "--clients", ",".join(map(str, options.clients)), "--drain", options.drain,
        "--runs", 100_000, "--until", options.until, "--out", out, "--spool", options.spool,
    )  # fmt: skip
    return [json.loads(file.read_text()) for file in sorted(out.glob("*-ingest-*.json"))]


def _run(options: argparse.Namespace, script: str, *arguments: object) -> None:
    command = [sys.executable, str(options.bench_dir / script), *map(str, arguments)]
    # The scripts start other scripts with the interpreter of this variable.
    environment = os.environ | {"BENCH_VENV": str(Path(sys.executable).parent.parent)}
    subprocess.run(command, cwd=options.bench_dir, env=environment, check=True)


def _print(reports: list[Report], floors: list[Report], peers: list[Report]) -> None:
    rates = [report["copy"][FLOOR]["rows_per_s"]["median"] for report in floors]
    times = [report["copy"][FLOOR]["transaction_p50_ms"]["median"] for report in floors]
    rate, time = statistics.mean(rates), statistics.mean(times)
    stored = max((_stored_rate(report) for report in peers), default=0.0)
    acknowledged = max((report["acknowledged_runs_per_s"] for report in peers), default=0.0)
    _print_line(
        f"\nFloor: {' and '.join(f'{r:,.0f}' for r in rates)} rows/s, transaction p50 {time:.1f} ms"
    )
    for report in peers:
        _print_line(
            f"{report['label']}, {report['clients']} clients:"
            f" {report['acknowledged_runs_per_s']:,.0f} acknowledged,"
            f" {_stored_rate(report):,.1f} stored a second"
        )
    _print_line(
        "\n| wire | clients | acknowledged/s | lost | ack p50 | p95 ms | p95/floor | of floor |"
        " of peers' stored | of peers' acknowledged | CPU ms/run | bytes/run |"
    )
    _print_line("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|")
    for report in reports:
        ours, ack = report["acknowledged_runs_per_s"], report["ack_ms"]
        verified = report.get("verify", {})
        cpu = ", ".join(f"{name} {spent:.3f}" for name, spent in report["cpu_ms_per_run"].items())
        _print_line(
            f"| {report['wire']} | {report['clients']} | {ours:,.0f} |"
            f" {verified.get('missing_runs', '?')} | {ack.get('p50')} | {ack.get('p95')} |"
            f" {ack.get('p95', 0) / time:.2f} | {ours / rate:.2f} | {_times(ours, stored)} |"
            f" {_times(ours, acknowledged)} | {cpu} | {report.get('database_bytes_per_run', '?')} |"
        )
    _print_line(
        f"\nTargets: lost 0; of floor {MIN_FLOOR_RATIO};"
        f" p95/floor {MAX_TRANSACTION_RATIO} with 4 clients;"
        f" of peers' stored {MIN_STORED_RATIO:.0f};"
        f" of peers' acknowledged {MIN_ACKNOWLEDGED_RATIO}."
    )


def _stored_rate(report: Report) -> float:
    return float(report.get("verify", {}).get("stored_runs_per_s", 0.0))


def _times(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.1f}" if theirs else "-"


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
