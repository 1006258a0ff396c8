"""When the database cannot keep up: come again, before memory grows, and nothing is lost."""

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
from tests.factories.tracing import MULTIPART, form, rows, wire_run


@pytest.fixture
def somebody_holds_the_table(transactional_db):
    """Another connection has locked the runs, as a change of the table does."""
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("LOCK TABLE trace_store_run IN ACCESS EXCLUSIVE MODE")
        yield other


@pytest.mark.django_db(transaction=True)
def test_a_table_that_is_locked_asks_to_come_again(api, monkeypatch, somebody_holds_the_table):
    monkeypatch.setattr(write_runs, "_UPSERT_TIMEOUT", "SET LOCAL lock_timeout = '200ms'")
    run = wire_run()

    refused = api.post("/runs/batch", {"post": [run]})
    somebody_holds_the_table.rollback()
    repeated = api.post("/runs/batch", {"post": [run]})

    assert (refused.status_code, refused["Retry-After"]) == (503, "1")
    assert repeated.status_code == 202
    assert rows() == 1


def test_a_body_that_grows_past_the_room_there_is_asks_to_come_again(settings, rf):
    settings.BODY_MEMORY_BYTES = 3_000_000
    packed = zstandard.ZstdCompressor().compress(bytes(5_000_000))
    request = rf.post("/runs/multipart", packed, MULTIPART, headers={"Content-Encoding": "zstd"})

    with body_memory.body_memory_budget.reserve() as held:
        held.add(len(packed))
        request.META[body_memory.RESERVATION_KEY] = held
        with pytest.raises(body_memory.BudgetExceeded):
            request_body.read_body(request)
        assert body_memory.body_memory_budget.used <= settings.BODY_MEMORY_BYTES

    assert body_memory.body_memory_budget.used == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_gzip_bomb_is_rejected_while_decompressing(api, settings, encoding):

    settings.MAX_BODY_BYTES = 1_048_576
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]

    response = api.multipart(pack(bytes(200_000_000)), **{"Content-Encoding": encoding})

    assert response.status_code == 413
    assert rows() == 0


def test_body_of_many_chunks_is_read_completely(api):
    run = wire_run(inputs={"text": "again " * 600_000})
    body = form((f"post.{run['id']}", run))

    packed = zstandard.ZstdCompressor().compress(body)
    response = api.multipart(packed, **{"Content-Encoding": "zstd"})

    assert response.status_code == 202
    assert api.get(f"/runs/{run['id']}").json()["inputs"] == run["inputs"]
