"""What follows from runs that came: the settler, terms, sums."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection, transaction

from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.trace_store import ChangedRun, RunQuery, filters, run_store
from apps.trace_store.filters.terms import TermKind, hash_term
from apps.trace_store.postgres.postprocess import processor, queue
from apps.trace_store.postgres.postprocess.term_index import salt_terms
from apps.tracing.services import ensure_project
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import begun, ended, ingest, read, stored_run, wire_run


def unsettled(workspace):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run_ids, failure FROM trace_store_pending_run WHERE workspace_id = %s ORDER"
            " BY id",
            [workspace.pk],
        )
        return cursor.fetchall()


def terms_of(workspace, run_id):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT terms FROM trace_store_run_terms WHERE workspace_id = %s AND id = %s",
            [workspace.pk, run_id],
        )
        return [set(row[0]) for row in cursor.fetchall()]


def sums_of(run_id):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum_prompt_tokens, sum_completion_tokens, sum_total_tokens, sum_total_cost"
            " FROM trace_store_run WHERE id = %s",
            [run_id],
        )
        return cursor.fetchone()


def call_of_model(parent, tokens, cost="0.5"):
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    usage["total_cost"] = cost
    return wire_run(parent=parent, run_type="llm", outputs={"usage_metadata": usage})


def patch(workspace, *updates):
    body = json.dumps({"patch": updates}).encode()
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(body))


@pytest.fixture
def steps(monkeypatch):
    """`steps(function, ...)`: the settler's steps, instead of all others."""

    def set_steps(*functions):
        monkeypatch.setattr(processor, "_steps", lambda: list(functions))

    return set_steps


def test_settling_takes_everything_off_the_list_and_is_safe_to_repeat(workspace):
    run_id = stored_run(workspace)

    assert processor.process_all() == 1
    assert processor.process_all() == 0

    assert unsettled(workspace) == []
    assert len(terms_of(workspace, run_id)) == 1


def test_a_run_that_several_requests_touched_is_settled_once(workspace, steps):
    seen = []
    steps(lambda _, touched: seen.extend(touched))
    run = wire_run()
    ingest(workspace, begun(run))
    patch(workspace, ended(run))

    processor.process_all()

    assert [str(one.run_id) for one in seen] == [run["id"]]


def test_each_workspace_is_settled_apart(workspace, stranger, steps):
    seen = []
    steps(lambda workspace_id, touched: seen.append((workspace_id, len(touched))))
    for owner in (workspace, stranger, workspace):
        stored_run(owner)

    processor.process_all()

    assert sorted(seen) == sorted([(workspace.pk, 2), (stranger.pk, 1)])


def test_a_run_that_cannot_be_settled_is_parked_alone_with_the_reason(workspace, steps, caplog):
    settled = []
    runs = [wire_run() for _ in range(7)]
    poison = UUID(runs[4]["id"])

    def step(_, touched):
        if poison in {one.run_id for one in touched}:
            raise ValueError("indigestible")
        settled.extend(one.run_id for one in touched)

    steps(step)
    ingest(workspace, *runs)

    with caplog.at_level(logging.CRITICAL):
        processor.process_all()

    assert unsettled(workspace) == [([poison], "ValueError: indigestible")]
    assert set(settled) == {UUID(run["id"]) for run in runs} - {poison}


def test_a_parked_run_is_tried_again_later(workspace, steps, caplog):
    run_id = stored_run(workspace)

    def fail(_, __):
        raise ValueError

    steps(fail)
    with caplog.at_level(logging.CRITICAL):
        processor.process_all()
    steps(lambda _, __: None)

    assert processor.process_all() == 0
    with connection.cursor() as cursor:
        cursor.execute("UPDATE trace_store_pending_run SET retry_at = now()")
    assert processor.process_all() == 1
    assert unsettled(workspace) == []
    assert read(workspace, run_id).row.id == run_id


def test_what_a_step_did_is_undone_with_the_step_that_failed(workspace, steps, caplog):
    stored_run(workspace)

    def write(workspace_id, _):
        ensure_project(workspace_id, "made by a step")

    def fail(_, __):
        raise ValueError

    steps(write, fail)
    with caplog.at_level(logging.CRITICAL):
        processor.process_all()

    query = "SELECT count(*) FROM tracing_project WHERE name = 'made by a step'"
    with connection.cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchone() == (0,)


def test_a_second_settler_leaves_a_workspace_alone_that_has_one_and_takes_another(
    transactional_db, steps
):
    workspace, other = WorkspaceFactory(), WorkspaceFactory()
    stored_run(workspace)
    stored_run(other)
    held, free = threading.Event(), threading.Event()

    def hold():
        try:
            with transaction.atomic():
                assert queue.claim_oldest(10).workspace_id == workspace.pk
                held.set()
                free.wait(20)
        finally:
            connection.close()

    steps(lambda _, __: None)
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    settled = processor.process_all()
    free.set()
    holder.join(20)

    assert settled == 1
    assert (len(unsettled(workspace)), len(unsettled(other))) == (1, 0)


def test_terms_are_of_the_workspace_alone_and_follow_the_run(workspace):
    run = wire_run(outputs={"answer": "first"})
    ingest(workspace, run)
    processor.process_all()
    (before,) = terms_of(workspace, run["id"])

    patch(workspace, ended(run | {"outputs": {"answer": "second"}}))
    processor.process_all()
    (after,) = terms_of(workspace, run["id"])

    first, second = salt_terms(
        workspace.pk, [hash_term(TermKind.WORD, "first"), hash_term(TermKind.WORD, "second")]
    )
    assert first in before
    assert second not in before
    assert second in after
    assert first not in after


def test_sums_are_written_to_what_is_above_and_shown_from_there(workspace):
    root = wire_run()
    inner = wire_run(parent=root)
    calls = [call_of_model(inner, 10), call_of_model(root, 100)]
    ingest(workspace, root, inner, *calls)
    live = {one["id"]: read(workspace, one["id"]).row.usage for one in (root, inner)}

    processor.process_all()

    assert sums_of(root["id"]) == (110, 2, 112, Decimal("1.0"))
    assert sums_of(inner["id"]) == (10, 1, 11, Decimal("0.5"))
    assert sums_of(calls[0]["id"]) == (None, None, None, None)
    assert {one: read(workspace, one).row.usage for one in live} == live


def test_what_comes_later_counts_at_once_and_is_settled_again(workspace):
    root = wire_run()
    ingest(workspace, root, call_of_model(root, 10))
    processor.process_all()

    ingest(workspace, call_of_model(root, 5))

    assert read(workspace, root["id"]).row.total_tokens == 17
    assert sums_of(root["id"])[2] == 11
    processor.process_all()
    assert sums_of(root["id"])[2] == 17
    assert read(workspace, root["id"]).row.total_tokens == 17


def test_sums_that_nothing_says_any_more_go(workspace):
    root = wire_run()
    call = call_of_model(root, 10)
    ingest(workspace, root, call)
    processor.process_all()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM trace_store_run WHERE id = %s", [call["id"]])
    detail = read(workspace, root["id"]).row

    queue.enqueue(
        workspace.pk, [ChangedRun(detail.id, detail.project_id, detail.partition_time, detail.id)]
    )
    processor.process_all()

    assert sums_of(root["id"]) == (None, None, None, None)


def test_a_filter_finds_the_same_before_and_after_settling(workspace):
    start = datetime.now(UTC) - timedelta(days=3)
    wanted = wire_run(start=start, outputs={"answer": "a needle in the hay"})
    ingest(workspace, wanted, *[wire_run() for _ in range(3)])
    project = ensure_project(workspace.pk, "default")
    query = RunQuery(project_ids=[project.pk], where=filters.parse('search("needle")'))

    before = run_store.query(workspace.pk, query, limit=10)
    processor.process_all()
    after = run_store.query(workspace.pk, query, limit=10)

    assert [str(one.row.id) for one in before.runs] == [wanted["id"]]
    assert before == after


def _old(days):
    return datetime.now(UTC) - timedelta(days=days)


def test_old_work_sent_under_new_ids_has_its_sums(workspace):
    root = wire_run(start=_old(300))
    call = call_of_model(root, 10) | {"session_name": "default"}
    ingest(workspace, root, call)

    processor.process_all()

    assert sums_of(root["id"]) == (10, 1, 11, Decimal("0.5"))


def test_a_trace_has_its_sums_though_its_root_began_long_before(workspace):
    root = wire_run(start=_old(60))
    ingest(workspace, root)
    processor.process_all()
    ingest(workspace, call_of_model(root, 10))
    processor.process_all()
    ingest(workspace, call_of_model(root, 20))

    processor.process_all()

    assert sums_of(root["id"]) == (30, 2, 32, Decimal("1.0"))


def test_a_batch_of_old_and_new_traces_under_ids_of_all_kinds_has_all_sums(workspace):
    random_id = UUID("6a0c1f0e-6f4b-4d1c-9d6e-0f5b8c3a2e11")
    roots = [wire_run(start=_old(400), id=random_id), wire_run(start=_old(9)), wire_run()]
    ingest(workspace, *roots, *(call_of_model(root, n) for n, root in enumerate(roots, 1)))

    processor.process_all()

    assert [sums_of(root["id"])[2] for root in roots] == [2, 3, 4]
