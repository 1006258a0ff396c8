"""Jobs start runs within their limits and record each end once."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.utils import timezone

from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.services import queue_limits
from apps.audit.models import Entry
from apps.experiment_jobs import errors
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.services import execution, jobs
from apps.experiment_jobs.services.agent_runner import AgentRunner
from apps.trace_store import Payload, RunQuery, run_store
from apps.tracing.models import Project
from apps.usage.quotas import UsageLimitExceeded
from tests.experiment_jobs.conftest import advance, end, open_runs
from tests.factories.datasets import make_dataset

pytestmark = pytest.mark.django_db


def read_roots(job):
    """The root runs of the experiment by their question, oldest first."""
    query = RunQuery(project_ids=[job.experiment_id], is_root=True)
    page = run_store.query(
        job.workspace_id, query, limit=100, payloads=[Payload.INPUTS, Payload.OUTPUTS]
    )
    return list(reversed(page.runs))


def outputs_of(root):
    return root.value(Payload.OUTPUTS)


def test_each_example_runs_once_per_repetition(start):
    job = start(repetitions=2)

    advance(job)

    assert job.total_count == 6
    inputs = [run.kwargs["input"]["question"] for run in open_runs(job)]
    assert inputs == [0, 1, 2, 0, 1, 2]
    roots = read_roots(job)
    assert [root.value(Payload.INPUTS)["question"] for root in roots] == inputs
    assert {root.row.end_time for root in roots} == {None}
    assert len({root.row.reference_example_id for root in roots}) == 3


def test_the_ends_of_runs_are_results_and_complete_the_job(start):
    job = start()
    advance(job)
    first, second, third = open_runs(job)
    end(first, values={"answer": 1})
    end(second, "error", error={"error": "ValueError", "message": "no"}, values={"answer": 2})
    end(third, "timeout", error={"error": "TimeoutError", "message": "late"})

    advance(job)
    advance(job)

    assert (job.status, job.succeeded_count, job.failed_count) == ("completed", 1, 2)
    roots = read_roots(job)
    assert [outputs_of(root) for root in roots] == [{"answer": 1}, {"answer": 2}, {}]
    assert [root.row.error_preview for root in roots] == [
        None,
        "ValueError: no",
        "TimeoutError: late",
    ]
    assert [root.row.id for root in roots] == list(
        ExperimentStep.unscoped.order_by("position").values_list("pk", flat=True)
    )
    assert all(root.row.end_time is not None for root in roots)
    assert not Thread.unscoped.filter(temporary=False).exists()
    project = Project.unscoped.get(pk=job.experiment_id)
    assert project.end_time == job.ended_at


def test_a_repeated_advance_after_a_crash_records_nothing_twice(start):
    job = start()
    advance(job)
    for run in open_runs(job):
        end(run, values={"answer": 1})
    # The transaction of a killed worker is rolled back.
    with transaction.atomic():
        execution.advance_organization(job.workspace.organization_id)
        transaction.set_rollback(True)

    job.refresh_from_db()
    assert (job.status, job.succeeded_count) == ("running", 0)
    advance(job)
    advance(job)

    assert (job.status, job.succeeded_count) == ("completed", 3)
    assert len(read_roots(job)) == 3
    assert ExperimentJob.unscoped.get().succeeded_count == 3


def test_open_runs_are_limited_by_the_concurrency_of_the_job(start):
    job = start(concurrency=2)

    advance(job)
    advance(job)

    assert len(open_runs(job)) == 2
    end(open_runs(job)[0], values={})
    advance(job)
    assert len(open_runs(job)) == 2
    assert job.succeeded_count == 1


def test_jobs_of_an_organization_share_its_limit(start, settings):
    settings.MAX_EXPERIMENT_RUNS = 4
    first = start(repetitions=2)
    second = start(repetitions=2)

    advance(first)

    assert [len(open_runs(job)) for job in (first, second)] == [2, 2]
    for run in open_runs(first):
        end(run, values={})
    jobs.cancel_job(job=second)
    advance(first)
    assert len(open_runs(first)) + len(open_runs(second)) <= 4


def test_a_task_skips_an_organization_that_another_one_advances(start, monkeypatch):
    job = start()
    monkeypatch.setattr(execution, "_try_lock", lambda _: False)

    assert execution.advance_organization(job.workspace.organization_id) is False

    assert open_runs(job) == []


def test_the_mapping_builds_the_input_and_a_missing_field_fails_the_run(start, workspace):
    dataset = make_dataset(workspace, {"question": "why?"}, {"other": 1}, name="mixed")
    job = start(dataset=dataset, input_mapping={"messages": ["{{question}}"]})

    advance(job)

    (run,) = open_runs(job)
    assert run.kwargs["input"] == {"messages": ["why?"]}
    assert job.failed_count == 1
    failed = [root for root in read_roots(job) if root.row.error_preview]
    assert [root.row.error_preview for root in failed] == [
        "The inputs of the example have no `question`."
    ]
    assert failed[0].row.end_time is not None


def test_values_of_an_interrupted_graph_name_the_interrupts(start):
    job = start()
    advance(job)
    for run in open_runs(job):
        end(run, values={"a": 1}, interrupts={"task": [{"value": "ok?", "id": "1"}]})

    advance(job)

    assert outputs_of(read_roots(job)[0]) == {
        "a": 1,
        "__interrupt__": [{"value": "ok?", "id": "1"}],
    }


def test_values_that_are_no_object_are_the_output(start):
    job = start()
    advance(job)
    for run in open_runs(job):
        end(run, values=[1, 2])

    advance(job)

    assert outputs_of(read_roots(job)[0]) == {"output": [1, 2]}


def test_a_deleted_agent_run_is_a_failed_run(start):
    job = start()
    advance(job)
    AgentRun.unscoped.all().delete()

    advance(job)

    assert (job.status, job.failed_count) == ("completed", 3)
    assert read_roots(job)[0].row.error_preview == (
        "The agent run was deleted before its result was read."
    )


def test_runs_are_traced_below_their_root_run(start):
    job = start()

    advance(job)

    root = read_roots(job)[0].row
    parent = open_runs(job)[0].kwargs["trace_parent"]
    assert parent == {"dotted_order": root.dotted_order, "project_name": job.experiment.name}


def test_cancelling_stops_open_runs_and_starts_no_others(start):
    job = start(concurrency=1)
    advance(job)
    (run,) = open_runs(job)

    jobs.cancel_job(job=job)
    advance(job)

    assert open_runs(job) == []
    assert (job.status, job.succeeded_count, job.failed_count) == ("cancelled", 0, 0)
    run.refresh_from_db()
    assert (run.status, run.thread.temporary) == ("interrupted", True)
    (root,) = read_roots(job)
    assert root.row.error_preview == "UserInterrupt: The run was cancelled."
    with pytest.raises(errors.JobFinished):
        jobs.cancel_job(job=job)
    actions = Entry.objects.values_list("action", flat=True)
    assert sorted(a for a in actions if a.startswith("experiment.")) == [
        "experiment.cancelled",
        "experiment.started",
    ]


def test_a_running_run_is_cancelled_and_the_job_waits_for_its_end(start):
    job = start(concurrency=1)
    advance(job)
    (run,) = open_runs(job)
    AgentRun.unscoped.filter(pk=run.pk).update(status="running", attempt=1)

    jobs.cancel_job(job=job)
    jobs.cancel_job(job=job)
    advance(job)

    assert job.status == "cancelling"
    run.refresh_from_db()
    assert run.cancel_action == "interrupt"
    end(run, "interrupted", values={})
    advance(job)
    assert job.status == "cancelled"


def test_a_stopped_deployment_pauses_the_job(start, agent):
    job = start()
    agent.status = "UNUSED"
    agent.save()

    advance(job)

    assert (job.status, open_runs(job)) == ("running", [])
    agent.status = "READY"
    agent.save()
    advance(job)
    assert len(open_runs(job)) == 3


@pytest.mark.parametrize("target", ["agent", "dataset", "experiment"])
def test_a_deleted_target_fails_the_job(start, agent, dataset, target):
    job = start(concurrency=1)
    advance(job)
    row = {"agent": agent, "dataset": dataset, "experiment": job.experiment}[target]
    row.deleted_at = timezone.now()
    row.save()

    advance(job)
    for run in open_runs(job):
        end(run, "interrupted", values={})
    advance(job)

    assert job.status == "failed"
    assert job.error


@pytest.mark.parametrize(
    ("retry_after", "status", "error"),
    [(None, "failed", "The limit is reached."), (60, "running", "")],
)
def test_a_limit_of_the_month_fails_the_job_and_one_of_the_hour_pauses_it(
    start, monkeypatch, retry_after, status, error
):
    job = start()

    def refuse(_):
        raise UsageLimitExceeded(
            "The limit is reached.", until=timezone.now(), retry_after=retry_after
        )

    monkeypatch.setattr("apps.usage.quotas.check", refuse)
    advance(job)

    assert AgentRun.unscoped.count() == 0
    assert (job.status, job.error) == (status, error)


def test_a_full_queue_delays_the_runs(start, settings, monkeypatch):
    settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT = 2
    # Every refusal counts the queue, also one shortly after another.
    monkeypatch.setattr(queue_limits, "MIN_AGE_SECONDS", 0.0)
    job = start()

    advance(job)

    assert len(open_runs(job)) == 2
    assert job.failed_count == 0
    for run in open_runs(job):
        end(run, values={})
    advance(job)
    advance(job)
    assert len(open_runs(job)) == 1


def test_a_slice_advances_all_organizations_and_ends_with_their_jobs(start):
    job = start()
    execution.run_slice(0)

    for run in open_runs(job):
        end(run, values={})
    execution.run_slice(0)

    job.refresh_from_db()
    assert job.status == "completed"
    execution.run_slice(0)


def test_old_steps_are_deleted_and_the_counts_stay(start):
    job = start()
    advance(job)
    for run in open_runs(job):
        end(run, values={})
    advance(job)
    assert execution.delete_old_steps() == 0
    ExperimentJob.unscoped.update(ended_at=timezone.now() - 2 * execution.STEP_RETENTION)

    assert execution.delete_old_steps() == 3

    assert ExperimentJob.unscoped.get().succeeded_count == 3


def test_a_step_that_cannot_be_started_does_not_stop_the_others(start, monkeypatch):
    job, second = start(), start()
    create = AgentRunner.start

    def fail_for_one(runner, failing, step, inputs):
        if failing.pk == job.pk and step.position == 1:
            raise OverflowError
        return create(runner, failing, step, inputs)

    monkeypatch.setattr(AgentRunner, "start", fail_for_one)

    advance(job)

    second.refresh_from_db()
    statuses = ExperimentStep.unscoped.filter(job=job).order_by("position")
    assert list(statuses.values_list("status", flat=True)) == ["running", "failed", "running"]
    assert ExperimentStep.unscoped.filter(job=second, status="running").count() == 3
    assert job.failed_count == 1
