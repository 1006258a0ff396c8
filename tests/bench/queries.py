"""`make bench-queries RUNS=5000000`: how long do the reads take that people wait for?

Seeds the running platform (DATA_DIR, PORT), unless `--seeded` says that it is, and asks over HTTP,
one request at a time, every question in turn. The plans go to a file.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django

from config.env import BASE_DIR

PAGE = 50
_ROW = "id name run_type start_time end_time status error inputs_preview outputs_preview"
_ROW += " total_tokens total_cost tags thread_id trace_id parent_run_id feedback_stats"


@dataclass
class Question:
    about: str
    ask: Callable[[int], dict[str, Any]]
    """The body of request number n."""
    target_ms: float = 150
    path: str = "/runs/query"


class Client:
    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self.headers = {"X-Api-Key": key, "Content-Type": "application/json"}

    def send(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        self.connection.request(method, path, content, self.headers)
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {said[:300]!r}")
        return json.loads(said)


def questions(project_id: str, largest: str | None) -> dict[str, Question]:
    """What is asked for; values change from request to request."""
    base = {"session": [project_id], "limit": PAGE, "select": _ROW.split()}
    now = datetime.now(UTC)

    def page(about: str, target_ms: float = 150, **filters: Any) -> Question:
        def ask(n: int) -> dict[str, Any]:
            said = {k: v(n) if callable(v) else v for k, v in filters.items()}
            return base | said

        return Question(about, ask, target_ms)

    def pair(key: str, value: str) -> str:
        return f'and(eq(metadata_key, "{key}"), eq(metadata_value, "{value}"))'

    found = {
        "roots": page("first page of roots", is_root=True),
        "runs": page("first page of all runs"),
        "errors": page("runs with an error", error=True),
        "slow": page("roots of 15 s and more", is_root=True, filter="gt(latency, 15)"),
        "slowest": page("roots of 120 s and more", is_root=True, filter="gt(latency, 120)"),
        "customer": page(
            "runs of one customer", filter=lambda n: pair("customer", f"customer-{n % 500:04d}")
        ),
        "tag": page("runs with a rare tag", filter='has(tags, "nightly")'),
        "model": page("calls of a rare model", filter=pair("ls_model_name", "mistral-large")),
        "name": page("runs of one tool", filter='and(eq(run_type, "tool"), eq(name, "run_sql"))'),
        "thread": page(
            "one thread", is_root=True, filter=lambda n: f'eq(thread_id, "thread-{n * 7:05d}")'
        ),
        "tokens": page("roots of many tokens", is_root=True, filter="gt(total_tokens, 20000)"),
        "roots_tag": page("roots with a rare tag", is_root=True, filter='has(tags, "nightly")'),
        "type": page("runs of a type that there is none of", run_type="prompt"),
        "slow_tool": page(
            "slow runs of one tool", filter='and(eq(name, "run_sql"), gt(latency, 3))'
        ),
        "cost": page("roots of 0.3 dollars and more", is_root=True, filter="gt(total_cost, 0.3)"),
        "tree": page(
            "roots of traces with a tool", is_root=True, tree_filter='eq(name, "run_sql")'
        ),
        "feedback": page(
            "roots with bad feedback",
            is_root=True,
            filter='and(eq(feedback_key, "user_score"), eq(feedback_score, 0))',
        ),
        "week": page(
            "roots of an hour a week ago",
            is_root=True,
            start_time=(now - timedelta(days=7)).isoformat(),
            end_time=(now - timedelta(days=7) + timedelta(hours=1)).isoformat(),
        ),
        "search": page("a rare word", 500, filter=lambda n: f'search("kestrel{n % 20:02d}")'),
        "nothing": page("a word that is nowhere", 500, filter='search("ostrich")'),
        "frequent": page("a frequent word", 500, filter='search("user")'),
        "stats": Question(
            "statistics of 7 days",
            lambda _: {
                "session": [project_id],
                "start_time": (now - timedelta(days=7)).isoformat(),
            },
            500,
            "/runs/stats",
        ),
    }
    if largest is not None:
        found["trace"] = Question(
            "a page of the trace of 25,000 runs",
            lambda _: {"session": [project_id], "trace": largest, "select": _ROW.split()},
            1000,
        )
    return found


def measure(client: Client, asked: dict[str, Question], rounds: int) -> dict[str, Any]:
    """Every question `rounds` times, in turn with all others."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    rows: dict[str, int] = {}
    failed: dict[str, str] = {}
    for n in range(rounds + 1):  # the first round warms up
        for name, question in asked.items():
            if name in failed:
                continue
            begin = time.perf_counter()
            try:
                answer = client.send("POST", question.path, question.ask(n))
            except RuntimeError as error:
                failed[name] = str(error)
                continue
            if n:
                taken[name].append(1000 * (time.perf_counter() - begin))
            rows[name] = len(answer.get("runs", [])) or answer.get("run_count", 0)
    report: dict[str, Any] = {}
    print(f"  {'':10} {'p50':>9} {'p95':>9} {'target':>7}  rows")
    for name, question in asked.items():
        if name in failed:
            report[name] = {"failed": failed[name]}
            print(f"  {name:10} FAILED {failed[name]}")
            continue
        values = sorted(taken[name])
        p50, p95 = statistics.median(values), values[int(0.95 * (len(values) - 1))]
        report[name] = {"p50_ms": p50, "p95_ms": p95, "rows": rows[name]}
        mark = " " if p95 <= question.target_ms else "!"
        print(
            f"  {name:10} {p50:>6.1f} ms {p95:>6.1f} ms {question.target_ms:>4.0f} {mark}"
            f"  {rows[name]:,}  {question.about}"
        )
    return report


def write_plans(workspace_id: str, asked: dict[str, Question], target: Path) -> None:
    """EXPLAIN (ANALYZE, BUFFERS) of each statement that the store sends for a question."""
    from uuid import UUID

    from django.db import connection

    from apps.trace_store import run_store
    from apps.tracing.api.run_queries import run_query
    from apps.tracing.api.v1.serializers import RunsQuerySerializer
    from apps.tracing.services.statistics import run_stats
    from tests.bench.plans import recorded

    with connection.cursor() as cursor:
        # As pages are read.
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    with target.open("w") as file:
        for name, question in asked.items():
            body = RunsQuerySerializer(data=question.ask(1))
            body.is_valid(raise_exception=True)
            query = run_query(UUID(workspace_id), body.validated_data)
            with recorded() as seen:
                if question.path == "/runs/query":
                    run_store.query(UUID(workspace_id), query, limit=PAGE)
                else:
                    run_stats(UUID(workspace_id), query)
            file.write(f"\n==== {name}: {question.about}\n\n{seen.plans()}\n")


def manage(*words: str, quiet: bool = True) -> str:
    command = [sys.executable, str(BASE_DIR / "manage.py"), *words]
    done = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE if quiet else None, cwd=BASE_DIR
    )
    return done.stdout or ""


def largest_trace(workspace_id: str) -> str | None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT trace_id FROM trace_store_run WHERE workspace_id = %s"
            " AND partition_time > now() - interval '2 days'"
            " GROUP BY trace_id HAVING count(*) > 1000 ORDER BY count(*) DESC LIMIT 1",
            [workspace_id],
        )
        row = cursor.fetchone()
        return None if row is None else str(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeded", action="store_true", help="the population is there already")
    parser.add_argument("--organization", default="Query bench")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--plans", type=Path, default=Path("plans.txt"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    words = ("--organization", args.organization, "--email", "bench@example.com", "--json")
    found = json.loads(manage("bootstrap", *words))
    # What is timed asks more often than anybody may.
    manage("set_limits", "--organization", args.organization, "--factor", "100000")
    if not args.seeded:
        size = ("--runs", str(args.runs), "--days", str(args.days))
        manage("seed", "--workspace", found["workspace_id"], *size, quiet=False)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    client = Client(found["api_url"].removesuffix("/api/v1"), found["api_key"])
    project = client.send("GET", "/sessions?name=seed&limit=1")[0]
    asked = questions(project["id"], largest_trace(found["workspace_id"]))
    chosen = args.only.split(",") if args.only else asked
    asked = {name: asked[name] for name in chosen}
    report = measure(client, asked, args.rounds)
    write_plans(found["workspace_id"], asked, args.plans)
    print(f"  plans: {args.plans}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
