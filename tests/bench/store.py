"""Queries of the agent store on a million items: plans and times.

`python -m tests.bench.store [--items N] [--vectors N] [--dims D]` fills a new
installation, sends each kind of query five times and prints the best time and the plan's last node.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from tests.gate import run_folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--vectors", type=int, default=20_000)
    parser.add_argument("--dims", type=int, default=768)
    parser.add_argument("--plans", action="store_true", help="print whole plans")
    options = parser.parse_args()
    with run_folder.use() as folder:
        os.environ |= {"DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
        from tests.installation import Installation

        installation = Installation(folder / "x")
        os.environ |= {"PORT": str(installation.port), "DATA_DIR": str(installation.data_dir)}
        installation.start()
        installation.wait_until_ready()
        try:
            import django

            django.setup()
            _measure(options)
        finally:
            installation.stop()
    return 0


def _measure(options: argparse.Namespace) -> None:
    from django.db import connection

    from apps.agent_server.store.statements import StoreOwner
    from apps.deployments.models import Deployment
    from apps.organizations.models import Workspace

    workspace = Workspace.objects.first()
    assert workspace is not None
    deployments = [
        Deployment.unscoped.create(workspace=workspace, name=f"d{n}", slug=uuid4().hex)
        for n in range(3)
    ]
    owners = [StoreOwner(workspace.pk, deployment.pk) for deployment in deployments]
    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
        started_at = time.perf_counter()
        _fill(cursor, owners, options)
        _print(f"filled in {time.perf_counter() - started_at:.0f} s")
        cursor.execute("ANALYZE agent_server_storeitem, agent_server_storevector")
        for name, (text, parameters) in _queries(owners[0], owners[2], options.dims):
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS OFF) " + text, parameters)
            plan = [row[0] for row in cursor.fetchall()]
            times = []
            for _ in range(5):
                started_at = time.perf_counter()
                cursor.execute(text, parameters)
                row_count = len(cursor.fetchall()) if cursor.description else cursor.rowcount
                times.append(time.perf_counter() - started_at)
            nodes = [line.strip(" ->").split("  (")[0] for line in plan if "  (cost" in line]
            _print(f"{name:44} {min(times) * 1000:9.2f} ms  {row_count:5} rows  {nodes[-1]}")
            if options.plans:
                _print("\n".join(plan))


def _fill(cursor: Any, owners: list[Any], options: argparse.Namespace) -> None:
    """Store items of 20,000 users in one agent, a tenth of them in another, vectors in a third."""
    insert = """
        INSERT INTO agent_server_storeitem (
            id, workspace_id, deployment_id, namespace, key, value, created_at, updated_at,
            ttl_minutes, expires_at
        )
        SELECT uuidv7(), %s, %s, ARRAY['users', 'u' || (n %% 20000), 'k' || (n %% 3)], n::text,
            jsonb_build_object('n', n, 'kind', 'kind ' || (n %% 10), 'rare', n / 50,
                'text', repeat(md5(n::text), 6)),
            now() - n * interval '1 second', now() - n * interval '1 second',
            CASE WHEN n %% 4 = 0 THEN 60 END,
            CASE WHEN n %% 4 = 0 THEN now() + (n %% 100 - 1) * interval '1 minute' END
        FROM generate_series(1, %s) n
    """
    for owner, items in zip(owners, (options.items, options.items // 10, 0), strict=True):
        cursor.execute(insert, [*owner, items])
    cursor.execute(insert, [*owners[2], options.vectors])
    cursor.execute(
        """
        INSERT INTO agent_server_storevector (item_id, position, path, dims, embedding)
        SELECT id, 0, 'text', %s, (
            SELECT array_agg(random() - 0.5)::real[]::vector
            FROM generate_series(1, %s) g WHERE g > 0 OR id IS NULL
        )
        FROM agent_server_storeitem WHERE deployment_id = %s
        """,
        [options.dims, options.dims, owners[2].deployment_id],
    )


def _queries(owner: Any, vector_owner: Any, dims: int) -> Iterator[tuple[str, Any]]:
    from apps.agent_server.store import filters, namespaces, statements
    from apps.agent_server.store.namespaces import NamespaceMatch

    def search(prefix: list[str], filter_document: Any = None, offset: int = 0) -> Any:
        condition = filters.compile_filter(filter_document)
        return statements.search(owner, prefix, condition, limit=10, offset=offset)

    def list_namespaces(*matches: NamespaceMatch, depth: int | None = None) -> Any:
        return namespaces.list_namespaces(owner, matches, max_depth=depth, limit=100, offset=0)

    item_key = statements.ItemKey(["users", "u7", "k0"], "20007")
    yield "get", statements.get(owner, item_key)
    yield "put", statements.put(owner, item_key, '{"a": 1}', None)
    yield "search: everything", search([])
    yield "search: everything, offset 100,000", search([], offset=100_000)
    yield "search: one user (50 items)", search(["users", "u7"])
    yield "search: all users", search(["users"])
    yield "search: unknown user", search(["unknown"])
    yield "filter: a tenth of all", search([], {"kind": "kind 3"})
    yield "filter: 50 of all", search([], {"rare": 7})
    yield "filter: none of all", search([], {"rare": -1})
    yield "filter: one user's", search(["users", "u7"], {"kind": "kind 7"})
    yield "filter: more than, half of all", search([], {"n": {"$gt": 500_000}})
    yield "filter: more than, none of all", search([], {"n": {"$gt": 10**9}})
    yield "namespaces: first 100 of 60,000", list_namespaces()
    yield "namespaces: depth 1 of 60,000", list_namespaces(depth=1)
    yield "namespaces: depth 2, first 100 of 20,000", list_namespaces(depth=2)
    yield "namespaces: below one user", list_namespaces(NamespaceMatch(True, ["users", "u7"]))
    yield "namespaces: ending, 20,000 match", list_namespaces(NamespaceMatch(False, ["k1"]))
    yield "namespaces: ending, none match", list_namespaces(NamespaceMatch(False, ["nothing"]))
    yield "sweep: 1,000 that expired", (statements.SWEEP, [1000])
    vector = statements.Vector("", dims, str([0.5] * dims))
    for name, prefix in (("all", []), ("one user's", ["users", "u7"])):
        query = statements.search(
            vector_owner, prefix, filters.compile_filter(None), limit=10, offset=0, query=vector
        )
        yield f"similarity: {name}", query


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
