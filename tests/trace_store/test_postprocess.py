"""Postprocessing of ingested runs: the processor, search terms and token totals."""

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
from apps.trace_store.postgres.postprocess.term_index import salt_terms, salted_marks
from apps.tracing.services import ensure_project
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import end_fields, ingest, read_run, start_fields, stored_run, wire_run


def read_pending(workspace):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run_ids, failure FROM trace_store_pending_run WHERE workspace_id = %s ORDER"
            " BY id",
            [workspace.pk],
        )
        return cursor.fetchall()


def read_terms(workspace, run_id):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT terms, tsvector_to_array(words) FROM trace_store_run_terms"
            " WHERE workspace_id = %s AND id = %s",
            [workspace.pk, run_id],
        )
        return [{*hashes, *words} for hashes, words in cursor.fetchall()]


def read_totals(run_id):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum_prompt_tokens, sum_completion_tokens, sum_total_tokens, sum_total_cost"
            " FROM trace_store_run WHERE id = %s",
            [run_id],
        )
        return cursor.fetchone()


def build_model_run(parent, tokens, cost="0.5"):
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    usage["total_cost"] = cost
    return wire_run(parent=parent, run_type="llm", outputs={"usage_metadata": usage})


def ingest_patch(workspace, *updates):
    body = json.dumps({"patch": updates}).encode()
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(body))


@pytest.fixture
def steps(monkeypatch):
    """A function `steps(function, ...)` that replaces the steps of the processor."""

    def set_steps(*functions):
        monkeypatch.setattr(processor, "_steps", lambda: list(functions))

    return set_steps


def test_processing_empties_the_queue_and_is_safe_to_repeat(workspace):
    run_id = stored_run(workspace)

    assert processor.process_all() == 1
    assert processor.process_all() == 0

    assert read_pending(workspace) == []
    assert len(read_terms(workspace, run_id)) == 1


def test_a_run_changed_by_several_requests_is_processed_once(workspace, steps):
    processed = []
    steps(lambda _, changed_runs: processed.extend(changed_runs))
    run = wire_run()
    ingest(workspace, start_fields(run))
    ingest_patch(workspace, end_fields(run))

    processor.process_all()

    assert [str(run.run_id) for run in processed] == [run["id"]]


def test_each_workspace_is_processed_separately(workspace, other_workspace, steps):
    processed = []
    steps(lambda workspace_id, changed_runs: processed.append((workspace_id, len(changed_runs))))
    for owner in (workspace, other_workspace, workspace):
        stored_run(owner)

    processor.process_all()

    assert sorted(processed) == sorted([(workspace.pk, 2), (other_workspace.pk, 1)])


def test_a_run_that_fails_processing_is_parked_alone_with_its_error(workspace, steps, caplog):
    processed = []
    runs = [wire_run() for _ in range(7)]
    poison = UUID(runs[4]["id"])

    def step(_, changed_runs):
        if poison in {run.run_id for run in changed_runs}:
            raise ValueError("indigestible")
        processed.extend(run.run_id for run in changed_runs)

    steps(step)
    ingest(workspace, *runs)

    with caplog.at_level(logging.CRITICAL):
        processor.process_all()

    assert read_pending(workspace) == [([poison], "ValueError: indigestible")]
    assert set(processed) == {UUID(run["id"]) for run in runs} - {poison}


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
    assert read_pending(workspace) == []
    assert read_run(workspace, run_id).row.id == run_id


def test_a_failing_step_rolls_back_the_previous_steps(workspace, steps, caplog):
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


def test_a_second_processor_skips_a_claimed_workspace_and_takes_another(transactional_db, steps):
    workspace, other = WorkspaceFactory(), WorkspaceFactory()
    stored_run(workspace)
    stored_run(other)
    claimed, release = threading.Event(), threading.Event()

    def hold_claim():
        try:
            with transaction.atomic():
                assert queue.claim_oldest(10).workspace_id == workspace.pk
                claimed.set()
                release.wait(60)
        finally:
            connection.close()

    steps(lambda _, __: None)
    thread = threading.Thread(target=hold_claim)
    thread.start()
    assert claimed.wait(60)
    processed = processor.process_all()
    release.set()
    thread.join(60)

    assert processed == 1
    assert (len(read_pending(workspace)), len(read_pending(other))) == (1, 0)


def test_terms_are_salted_by_workspace_and_updated_with_the_run(workspace):
    run = wire_run(name="step", outputs={"answer": "first"})
    ingest(workspace, run)
    processor.process_all()
    (before,) = read_terms(workspace, run["id"])

    ingest_patch(workspace, end_fields(run | {"outputs": {"answer": "second"}, "error": "late"}))
    processor.process_all()
    (after,) = read_terms(workspace, run["id"])

    marks = salted_marks(workspace.pk)
    (name,) = salt_terms(workspace.pk, [hash_term(TermKind.NAME, "step")])
    assert {name, f"{marks['o']}first", f"{marks['/']}status:success"} <= before
    assert {name, f"{marks['o']}second", f"{marks['/']}status:error"} <= after
    assert not {f"{marks['o']}first", f"{marks['/']}status:success"} & after


def test_totals_are_stored_in_the_ancestors_and_read_from_there(workspace):
    root = wire_run()
    inner = wire_run(parent=root)
    calls = [build_model_run(inner, 10), build_model_run(root, 100)]
    ingest(workspace, root, inner, *calls)
    usage_before = {run["id"]: read_run(workspace, run["id"]).row.usage for run in (root, inner)}

    processor.process_all()

    assert read_totals(root["id"]) == (110, 2, 112, Decimal("1.0"))
    assert read_totals(inner["id"]) == (10, 1, 11, Decimal("0.5"))
    assert read_totals(calls[0]["id"]) == (None, None, None, None)
    assert {
        run_id: read_run(workspace, run_id).row.usage for run_id in usage_before
    } == usage_before


def test_a_late_run_counts_before_and_after_processing(workspace):
    root = wire_run()
    ingest(workspace, root, build_model_run(root, 10))
    processor.process_all()

    ingest(workspace, build_model_run(root, 5))

    assert read_run(workspace, root["id"]).row.total_tokens == 17
    assert read_totals(root["id"])[2] == 11
    processor.process_all()
    assert read_totals(root["id"])[2] == 17
    assert read_run(workspace, root["id"]).row.total_tokens == 17


def test_totals_are_cleared_when_the_model_run_is_gone(workspace):
    root = wire_run()
    call = build_model_run(root, 10)
    ingest(workspace, root, call)
    processor.process_all()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM trace_store_run WHERE id = %s", [call["id"]])
    detail = read_run(workspace, root["id"]).row

    queue.enqueue(
        workspace.pk, [ChangedRun(detail.id, detail.project_id, detail.partition_time, detail.id)]
    )
    processor.process_all()

    assert read_totals(root["id"]) == (None, None, None, None)


def test_a_filter_finds_the_same_runs_before_and_after_processing(workspace):
    start = datetime.now(UTC) - timedelta(days=3)
    matching_run = wire_run(start=start, outputs={"answer": "a needle in the hay"})
    ingest(workspace, matching_run, *[wire_run() for _ in range(3)])
    project = ensure_project(workspace.pk, "default")
    query = RunQuery(project_ids=[project.pk], where=filters.parse('search("needle")'))

    before = run_store.query(workspace.pk, query, limit=10)
    processor.process_all()
    after = run_store.query(workspace.pk, query, limit=10)

    assert [str(run.row.id) for run in before.runs] == [matching_run["id"]]
    assert before == after


def _days_ago(days):
    return datetime.now(UTC) - timedelta(days=days)


def test_an_old_trace_sent_with_new_ids_has_totals(workspace):
    root = wire_run(start=_days_ago(300))
    call = build_model_run(root, 10) | {"session_name": "default"}
    ingest(workspace, root, call)

    processor.process_all()

    assert read_totals(root["id"]) == (10, 1, 11, Decimal("0.5"))


def test_a_trace_has_totals_when_its_root_started_long_before(workspace):
    root = wire_run(start=_days_ago(60))
    ingest(workspace, root)
    processor.process_all()
    ingest(workspace, build_model_run(root, 10))
    processor.process_all()
    ingest(workspace, build_model_run(root, 20))

    processor.process_all()

    assert read_totals(root["id"]) == (30, 2, 32, Decimal("1.0"))


def test_a_batch_of_old_and_new_traces_with_any_ids_has_totals(workspace):
    random_id = UUID("6a0c1f0e-6f4b-4d1c-9d6e-0f5b8c3a2e11")
    roots = [wire_run(start=_days_ago(400), id=random_id), wire_run(start=_days_ago(9)), wire_run()]
    ingest(workspace, *roots, *(build_model_run(root, n) for n, root in enumerate(roots, 1)))

    processor.process_all()

    assert [read_totals(root["id"])[2] for root in roots] == [2, 3, 4]
