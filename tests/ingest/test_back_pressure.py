"""Back pressure: an overloaded server answers 503 with Retry-After before memory grows."""

from __future__ import annotations

import gzip
import zlib

import psycopg
import pytest
import zstandard
from django.db import connection

from apps.core.http import body_memory
from apps.ingest import request_body
from apps.trace_store.postgres.writing import write_runs
from tests.factories.tracing import MULTIPART, count_stored_runs, multipart_body, wire_run


@pytest.fixture
def locked_run_table(transactional_db):
    """A second connection that holds an exclusive lock on the table of runs."""
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("LOCK TABLE trace_store_run IN ACCESS EXCLUSIVE MODE")
        yield other


@pytest.mark.django_db(transaction=True)
def test_a_locked_table_answers_503_with_retry_after(api, monkeypatch, locked_run_table):
    monkeypatch.setattr(write_runs, "_UPSERT_TIMEOUT", "SET LOCAL lock_timeout = '200ms'")
    run = wire_run()

    rejected = api.post("/runs/batch", {"post": [run]})
    locked_run_table.rollback()
    repeated = api.post("/runs/batch", {"post": [run]})

    assert (rejected.status_code, rejected["Retry-After"]) == (503, "1")
    assert repeated.status_code == 202
    assert count_stored_runs() == 1


def test_a_body_above_the_memory_budget_is_rejected(settings, rf):
    settings.BODY_MEMORY_BYTES = 3_000_000
    compressed = zstandard.ZstdCompressor().compress(bytes(5_000_000))
    request = rf.post(
        "/runs/multipart", compressed, MULTIPART, headers={"Content-Encoding": "zstd"}
    )

    with body_memory.body_memory_budget.reserve() as reservation:
        reservation.add(len(compressed))
        request.META[body_memory.RESERVATION_KEY] = reservation
        with pytest.raises(body_memory.BudgetExceeded):
            request_body.read_body(request)
        assert body_memory.body_memory_budget.used <= settings.BODY_MEMORY_BYTES

    assert body_memory.body_memory_budget.used == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_gzip_bomb_is_rejected_while_decompressing(api, settings, encoding):

    settings.MAX_BODY_BYTES = 1_048_576
    compress = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]

    response = api.multipart(compress(bytes(200_000_000)), **{"Content-Encoding": encoding})

    assert response.status_code == 413
    assert count_stored_runs() == 0


def test_body_of_many_chunks_is_read_completely(api):
    run = wire_run(inputs={"text": "again " * 600_000})
    body = multipart_body((f"post.{run['id']}", run))

    compressed = zstandard.ZstdCompressor().compress(body)
    response = api.multipart(compressed, **{"Content-Encoding": "zstd"})

    assert response.status_code == 202
    assert api.get(f"/runs/{run['id']}").json()["inputs"] == run["inputs"]
