"""`make bench-queries RUNS=5000000`: latency of the interactive read queries.

Seeds the running platform (DATA_DIR, PORT) unless `--seeded` is given, and sends each query in turn
over HTTP, one request at a time. The query plans are written to a file.
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
_SELECTED_FIELDS = (
    "id name run_type start_time end_time status error inputs_preview outputs_preview"
)
_SELECTED_FIELDS += " total_tokens total_cost tags thread_id trace_id parent_run_id feedback_stats"


@dataclass
class BenchQuery:
    description: str
    build_body: Callable[[int], dict[str, Any]]
    """Returns the body of request number n."""
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
        response_body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {response_body[:300]!r}")
        return json.loads(response_body)


def build_queries(project_id: str, largest_trace_id: str | None) -> dict[str, BenchQuery]:
    """Return the queries by name; their values change from request to request."""
    base = {"session": [project_id], "limit": PAGE, "select": _SELECTED_FIELDS.split()}
    now = datetime.now(UTC)

    def page_query(description: str, target_ms: float = 150, **filters: Any) -> BenchQuery:
        def build_body(n: int) -> dict[str, Any]:
            fields = {k: v(n) if callable(v) else v for k, v in filters.items()}
            return base | fields

        return BenchQuery(description, build_body, target_ms)

    def metadata_filter(key: str, value: str) -> str:
        return f'and(eq(metadata_key, "{key}"), eq(metadata_value, "{value}"))'

    queries = {
        "roots": page_query("first page of roots", is_root=True),
        "runs": page_query("first page of all runs"),
        "errors": page_query("runs with an error", error=True),
        "slow": page_query("roots of 15 s and more", is_root=True, filter="gt(latency, 15)"),
        "slowest": page_query("roots of 120 s and more", is_root=True, filter="gt(latency, 120)"),
        "customer": page_query(
            "runs of one customer",
            filter=lambda n: metadata_filter("customer", f"customer-{n % 500:04d}"),
        ),
        "tag": page_query("runs with a rare tag", filter='has(tags, "nightly")'),
        "model": page_query(
            "calls of a rare model", filter=metadata_filter("ls_model_name", "mistral-large")
        ),
        "name": page_query(
            "runs of one tool", filter='and(eq(run_type, "tool"), eq(name, "run_sql"))'
        ),
        "thread": page_query(
            "one thread", is_root=True, filter=lambda n: f'eq(thread_id, "thread-{n * 7:05d}")'
        ),
        "tokens": page_query(
            "roots of many tokens", is_root=True, filter="gt(total_tokens, 20000)"
        ),
        "roots_tag": page_query(
            "roots with a rare tag", is_root=True, filter='has(tags, "nightly")'
        ),
        "type": page_query("runs of a type that there is none of", run_type="prompt"),
        "slow_tool": page_query(
            "slow runs of one tool", filter='and(eq(name, "run_sql"), gt(latency, 3))'
        ),
        "cost": page_query(
            "roots of 0.3 dollars and more", is_root=True, filter="gt(total_cost, 0.3)"
        ),
        "tree": page_query(
            "roots of traces with a tool", is_root=True, tree_filter='eq(name, "run_sql")'
        ),
        "feedback": page_query(
            "roots with bad feedback",
            is_root=True,
            filter='and(eq(feedback_key, "user_score"), eq(feedback_score, 0))',
        ),
        "week": page_query(
            "roots of an hour a week ago",
            is_root=True,
            start_time=(now - timedelta(days=7)).isoformat(),
            end_time=(now - timedelta(days=7) + timedelta(hours=1)).isoformat(),
        ),
        "search": page_query("a rare word", 500, filter=lambda n: f'search("kestrel{n % 20:02d}")'),
        "nothing": page_query("a word that is nowhere", 500, filter='search("ostrich")'),
        "frequent": page_query("a frequent word", 500, filter='search("user")'),
        "stats": BenchQuery(
            "statistics of 7 days",
            lambda _: {
                "session": [project_id],
                "start_time": (now - timedelta(days=7)).isoformat(),
            },
            500,
            "/runs/stats",
        ),
    }
    if largest_trace_id is not None:
        queries["trace"] = BenchQuery(
            "a page of the trace of 25,000 runs",
            lambda _: {
                "session": [project_id],
                "trace": largest_trace_id,
                "select": _SELECTED_FIELDS.split(),
            },
            1000,
        )
    return queries


def measure(client: Client, queries: dict[str, BenchQuery], rounds: int) -> dict[str, Any]:
    """Send each query `rounds` times, alternating with the others, and return the statistics."""
    durations: dict[str, list[float]] = {name: [] for name in queries}
    rows: dict[str, int] = {}
    failures: dict[str, str] = {}
    for n in range(rounds + 1):  # the first round warms up
        for name, query in queries.items():
            if name in failures:
                continue
            begin = time.perf_counter()
            try:
                answer = client.send("POST", query.path, query.build_body(n))
            except RuntimeError as error:
                failures[name] = str(error)
                continue
            if n:
                durations[name].append(1000 * (time.perf_counter() - begin))
            rows[name] = len(answer.get("runs", [])) or answer.get("run_count", 0)
    report: dict[str, Any] = {}
    print(f"  {'':10} {'p50':>9} {'p95':>9} {'target':>7}  rows")
    for name, query in queries.items():
        if name in failures:
            report[name] = {"failed": failures[name]}
            print(f"  {name:10} FAILED {failures[name]}")
            continue
        values = sorted(durations[name])
        p50, p95 = statistics.median(values), values[int(0.95 * (len(values) - 1))]
        report[name] = {"p50_ms": p50, "p95_ms": p95, "rows": rows[name]}
        mark = " " if p95 <= query.target_ms else "!"
        print(
            f"  {name:10} {p50:>6.1f} ms {p95:>6.1f} ms {query.target_ms:>4.0f} {mark}"
            f"  {rows[name]:,}  {query.description}"
        )
    return report


def write_plans(workspace_id: str, queries: dict[str, BenchQuery], target: Path) -> None:
    """Write EXPLAIN (ANALYZE, BUFFERS) of each statement that the store sends for a query."""
    from uuid import UUID

    from django.db import connection

    from apps.trace_store import run_store
    from apps.tracing.api.run_queries import run_query
    from apps.tracing.api.v1.serializers import RunsQuerySerializer
    from apps.tracing.services.statistics import run_stats
    from tests.bench.plans import record_statements

    with connection.cursor() as cursor:
        # The same setting as for reads by pages.
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    with target.open("w") as file:
        for name, bench_query in queries.items():
            body = RunsQuerySerializer(data=bench_query.build_body(1))
            body.is_valid(raise_exception=True)
            query = run_query(UUID(workspace_id), body.validated_data)
            with record_statements() as recorder:
                if bench_query.path == "/runs/query":
                    run_store.query(UUID(workspace_id), query, limit=PAGE)
                else:
                    run_stats(UUID(workspace_id), query)
            file.write(f"\n==== {name}: {bench_query.description}\n\n{recorder.plans()}\n")


def manage(*arguments: str, quiet: bool = True) -> str:
    command = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
    completed = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE if quiet else None, cwd=BASE_DIR
    )
    return completed.stdout or ""


def find_largest_trace(workspace_id: str) -> str | None:
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
    parser.add_argument("--seeded", action="store_true", help="the platform has the data already")
    parser.add_argument("--organization", default="Query bench")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--plans", type=Path, default=Path("plans.txt"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    arguments = ("--organization", args.organization, "--email", "bench@example.com", "--json")
    facts = json.loads(manage("bootstrap", *arguments))
    # The benchmark sends more requests than the rate limits allow.
    manage("set_limits", "--organization", args.organization, "--factor", "100000")
    if not args.seeded:
        size_options = ("--runs", str(args.runs), "--days", str(args.days))
        manage("seed", "--workspace", facts["workspace_id"], *size_options, quiet=False)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    client = Client(facts["api_url"].removesuffix("/api/v1"), facts["api_key"])
    project = client.send("GET", "/sessions?name=seed&limit=1")[0]
    queries = build_queries(project["id"], find_largest_trace(facts["workspace_id"]))
    chosen = args.only.split(",") if args.only else queries
    queries = {name: queries[name] for name in chosen}
    report = measure(client, queries, args.rounds)
    write_plans(facts["workspace_id"], queries, args.plans)
    print(f"  plans: {args.plans}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
