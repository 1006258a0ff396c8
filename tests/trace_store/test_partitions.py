"""The daily partitions of runs: created ahead without gaps, merged when empty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from apps.trace_store.postgres import partitions
from tests.factories.tracing import count_stored_runs, read_run, stored_run

pytestmark = pytest.mark.usefixtures("forget_known_partitions")


def read_bounds():
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT pg_get_expr(c.relpartbound, c.oid)
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'trace_store_run'::regclass
            """
        )
        return sorted(text.replace(" 00:00:00+00", "") for (text,) in cursor.fetchall())


@pytest.fixture
def month(db):
    """The days of a new installation; the database of the tests has fewer."""
    with connection.cursor() as cursor:
        for day in partitions.list_partitions():
            for table in partitions.TABLES:
                cursor.execute(f'DROP TABLE "{table}_{day.suffix}"')
    partitions.create_partitions()


def test_partitions_have_no_gaps(db):
    last = partitions.create_partitions()

    texts = read_bounds()
    edges = [text.split("'")[1::2] for text in texts if "MINVALUE" not in text]
    assert [begin for begin, _ in edges[1:]] == [end for _, end in edges[:-1]]
    assert edges[-1][1] == last.isoformat()
    assert sum("MINVALUE" in text for text in texts) == 1


def test_creating_partitions_again_changes_nothing(db):
    partitions.create_partitions()
    before = read_bounds()

    partitions.create_partitions()

    assert read_bounds() == before


def test_a_long_pause_becomes_one_partition(db):
    last = partitions.create_partitions()
    before = len(read_bounds())
    later = datetime.combine(last, datetime.min.time(), UTC) + timedelta(days=400)

    partitions.create_partitions(later)

    assert (
        len(read_bounds()) == before + 1 + (partitions.CREATE_BEHIND + partitions.CREATE_AHEAD).days
    )
    assert any(
        f"TO ('{(later - partitions.CREATE_BEHIND).date()}')" in text for text in read_bounds()
    )


def test_the_first_run_after_a_pause_gets_a_partition(workspace, time_machine):
    time_machine.move_to(datetime.now(UTC) + timedelta(days=10))

    run_id = stored_run(workspace)

    assert read_run(workspace, run_id).row.name == "step"


def test_a_merged_partition_takes_late_runs(month, workspace):
    now = datetime.now(UTC)
    old = now - timedelta(days=20)
    stored_run(workspace, start=old)
    stored_run(workspace, start=datetime(2001, 1, 1, tzinfo=UTC))
    kept = stored_run(workspace, start=now - timedelta(days=5))
    before = len(read_bounds())

    for day in partitions.list_partitions():
        if day.ends_at <= now - timedelta(days=10):
            partitions.truncate_partition(day)
    merged = partitions.merge_empty_partitions(now - timedelta(days=10))

    assert merged >= 10
    assert len(read_bounds()) == before - merged
    assert count_stored_runs() == 1
    assert read_run(workspace, kept).row.name == "step"
    late_run_id = stored_run(workspace, start=old)
    assert read_run(workspace, late_run_id).row.start_time == old
    assert partitions.merge_empty_partitions(now - timedelta(days=10)) == 0


def test_empty_days_between_days_with_runs_are_merged(month, workspace):
    now = datetime.now(UTC)
    kept = [stored_run(workspace, start=now - timedelta(days=days)) for days in (40, 12)]

    partitions.merge_empty_partitions(now - timedelta(days=10))

    edges = [(day.begins_at, day.ends_at) for day in partitions.list_partitions()]
    assert edges[0][0] is None
    assert [begin for begin, _ in edges[1:]] == [end for _, end in edges[:-1]]
    merged = [(begin, end) for begin, end in edges[1:] if end - begin > timedelta(days=1)]
    assert len(merged) == 1
    assert all(read_run(workspace, run_id).row.name == "step" for run_id in kept)
