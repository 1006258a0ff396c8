"""Columns over a dataset: durable calls, progress, cancel, resume, results."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.services import execution
from apps.organizations.services.workspaces import set_secrets
from apps.playground import call_worker
from apps.playground.models import ModelCall
from apps.playground.services import model_calls
from apps.trace_store import Payload, RunQuery, run_store
from apps.tracing.models import Project
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.datasets import make_dataset
from tests.playground.conftest import send, setting
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]


@pytest.fixture
def dataset(workspace):
    return make_dataset(workspace, *({"question": f"Question {n}"} for n in range(3)))


@pytest.fixture
def start(page, base, dataset):
    """Return a function that starts experiments; keywords replace fields of the body."""

    def start(*columns: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
        body = body_of(dataset, *columns, **fields)
        response = send(page, f"{base}/experiments", body)
        assert response.status_code == 201, response.content
        return response.json()["jobs"]

    return start


def body_of(dataset, *columns, **fields):
    columns = columns or (setting(),)
    letters = [
        {"letter": letter, "setting": column}
        for letter, column in zip("ABC", columns, strict=False)
    ]
    return {"dataset_id": str(dataset.pk), "columns": letters, **fields}


def advance(workspace) -> None:
    execution.advance_organization(workspace.organization_id)


def make_calls() -> int:
    """Make the due calls as a worker does; return how many."""
    claimed = model_calls.claim(100)
    for call in claimed:
        outcome = asyncio.run(call_worker.make_call(call))
        if isinstance(outcome, datetime):
            model_calls.postpone(call, outcome)
        else:
            model_calls.record_end(call, outcome)
    return len(claimed)


def finish(workspace) -> None:
    for _ in range(20):
        advance(workspace)
        make_calls()
    advance(workspace)


def progress(page, base, *jobs):
    ids = ",".join(job["id"] for job in jobs)
    return page.get(f"{base}/experiments?jobs={ids}").json()["jobs"]


def roots_of(workspace, job):
    query = RunQuery(project_ids=[job["experiment_id"]], is_root=True)
    page = run_store.query(
        workspace.pk, query, limit=100, payloads=[Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR]
    )
    return page.runs


def test_each_column_is_an_experiment_with_a_run_for_each_example(
    page, workspace, base, start, provider
):
    provider.answer = lambda request: Reply(f"Re: {request.json()['messages'][-1]['content']}")

    first, second = start(setting(), setting(name="Short", model={"temperature": 0.5}), name="try")
    finish(workspace)

    done = progress(page, base, first, second)
    assert [(job["letter"], job["status"], job["done"], job["failed"]) for job in done] == [
        ("A", "completed", 3, 0),
        ("B", "completed", 3, 0),
    ]
    assert done[0]["cost"] == pytest.approx(3 * (60 * 0.4 + 40 * 0.1 + 20 * 1.6) / 1e6)
    assert done[0]["experiment_name"].startswith("try A-")
    assert len(provider.requests) == 6
    roots = roots_of(workspace, first)
    assert {root.value(Payload.OUTPUTS)["output"] for root in roots} == {
        f"Re: Question {n}" for n in range(3)
    }
    assert len({root.row.reference_example_id for root in roots}) == 3
    experiment = Project.unscoped.get(pk=second["experiment_id"])
    assert experiment.reference_dataset_id == ExperimentJob.unscoped.first().dataset_id
    assert experiment.extra["metadata"]["ls_model_name"] == "gpt-4.1-mini"


def test_call_is_a_child_of_the_root_run_with_its_tokens(workspace, start, provider):
    [job] = start()
    finish(workspace)

    call = ModelCall.unscoped.first()
    [child] = run_store.query(
        workspace.pk, RunQuery(run_ids=[call.pk]), limit=1, payloads=[Payload.INPUTS]
    ).runs
    assert (child.row.run_type, child.row.parent_run_id) == ("llm", call.step_id)
    assert str(child.row.project_id) == job["experiment_id"]
    assert child.row.usage.total_tokens == 120
    assert child.row.first_token_time is not None


def test_concurrency_is_that_of_the_job_and_the_organization(workspace, start, settings):
    settings.MAX_EXPERIMENT_RUNS = 3
    start(setting(), setting(), concurrency=2)

    advance(workspace)

    assert ModelCall.unscoped.count() == 3


def test_mapping_fills_variables_from_paths(page, workspace, base, provider):
    nested = make_dataset(workspace, {"a": {"b": "deep"}}, {"a": {}}, name="nested")
    body = body_of(nested, mapping={"question": "a.b"})

    [job] = send(page, f"{base}/experiments", body).json()["jobs"]
    finish(workspace)

    [done] = progress(page, base, job)
    assert (done["done"], done["failed"]) == (1, 1)
    assert [request["messages"][0]["content"] for request in provider.bodies] == ["deep"]
    errors = {root.value(Payload.ERROR) for root in roots_of(workspace, job)}
    assert errors == {None, "The inputs of the example have no `a.b`."}


def test_example_without_a_variable_is_a_failed_row(page, workspace, base, provider):
    other = make_dataset(workspace, {"other": 1}, name="other")
    [job] = send(page, f"{base}/experiments", body_of(other)).json()["jobs"]

    finish(workspace)

    [done] = progress(page, base, job)
    assert (done["status"], done["failed"]) == ("completed", 1)
    assert provider.requests == []
    rows = page.get(f"{base}/experiments/rows?jobs={job['id']}").json()["rows"]
    assert rows[0]["results"]["A"][0]["error"] == "These variables have no value: question."


def test_call_is_repeated_while_the_provider_is_busy(workspace, page, base, start, provider):
    answers = iter([Reply(status=429), Reply(status=503), *[Reply("Fine")] * 10])
    provider.answer = lambda _: next(answers)
    [job] = start()
    advance(workspace)
    make_calls()

    waiting = ModelCall.unscoped.filter(status="pending")
    assert waiting.count() == 2
    assert make_calls() == 0
    waiting.update(due_at=timezone.now())
    finish(workspace)

    [done] = progress(page, base, job)
    assert (done["status"], done["done"]) == ("completed", 3)
    assert len(provider.requests) == 5


def test_refused_request_is_a_result_and_is_not_repeated(workspace, page, base, start, provider):
    provider.answer = Reply(status=400, error="No such model.")
    [job] = start()

    finish(workspace)

    [done] = progress(page, base, job)
    assert (done["status"], done["failed"]) == ("completed", 3)
    assert len(provider.requests) == 3
    result = page.get(f"{base}/experiments/rows?jobs={job['id']}").json()["rows"][0]
    assert "No such model." in result["results"]["A"][0]["error"]


def test_call_of_a_killed_worker_is_made_again_and_counts_once(
    workspace, page, base, start, provider
):
    [job] = start()
    advance(workspace)
    lost = model_calls.claim(100)
    assert make_calls() == 0
    ModelCall.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))

    finish(workspace)

    late = asyncio.run(call_worker.make_call(lost[0]))
    assert not isinstance(late, datetime)
    assert model_calls.record_end(lost[0], late) is False
    [done] = progress(page, base, job)
    assert (done["status"], done["done"], done["total"]) == ("completed", 3, 3)
    assert set(ModelCall.unscoped.values_list("attempt", flat=True)) == {2}
    assert len(roots_of(workspace, job)) == 3
    assert model_calls.extend({call.id: call.attempt for call in lost}) == set()


def test_cancel_stops_open_calls_and_starts_no_others(workspace, page, base, start, provider):
    [job] = start(concurrency=1)
    advance(workspace)
    [claimed] = model_calls.claim(100)

    response = page.post(f"{base}/experiments/{job['id']}/cancel")
    advance(workspace)

    assert response.json()["status"] == "cancelling"
    assert model_calls.extend({claimed.id: claimed.attempt}) == set()
    [ended] = progress(page, base, job)
    assert (ended["status"], ended["done"], ended["failed"]) == ("cancelled", 0, 0)
    assert make_calls() == 0


def test_resume_continues_with_the_rows_without_a_result(workspace, page, base, start, provider):
    answers = iter([Reply(status=400), *[Reply("Fine")] * 10])
    provider.answer = lambda _: next(answers)
    [job] = start(concurrency=1)
    advance(workspace)
    make_calls()
    advance(workspace)
    make_calls()
    advance(workspace)
    page.post(f"{base}/experiments/{job['id']}/cancel")
    advance(workspace)
    [before] = progress(page, base, job)
    assert (before["status"], before["done"], before["failed"]) == ("cancelled", 1, 1)

    resumed = page.post(f"{base}/experiments/{job['id']}/resume")
    assert resumed.json()["status"] == "running"
    finish(workspace)

    [after] = progress(page, base, job)
    assert (after["status"], after["done"], after["failed"]) == ("completed", 3, 0)
    roots = roots_of(workspace, job)
    assert [root.row.error_preview for root in roots] == [None] * 3
    assert len({root.row.reference_example_id for root in roots}) == 3
    assert ExperimentStep.unscoped.count() == 3
    again = page.post(f"{base}/experiments/{job['id']}/resume", headers={"accept": "*/*"})
    assert (again.status_code, again.json()["code"]) == (409, "experiment_job_not_resumable")


def test_running_job_is_not_resumed(page, base, start):
    [job] = start()

    response = page.post(f"{base}/experiments/{job['id']}/resume", headers={"accept": "*/*"})

    assert response.status_code == 409


def test_key_that_is_deleted_meanwhile_stops_the_job(workspace, page, base, start, provider):
    [job] = start(concurrency=1)
    set_secrets(workspace_id=workspace.pk, values={"OPENAI_API_KEY": None})

    finish(workspace)

    [ended] = progress(page, base, job)
    assert ended["status"] == "failed"
    assert ended["error"] == "The workspace has no key for OpenAI."
    assert provider.requests == []


def test_rows_have_inputs_and_results_of_all_columns(workspace, page, base, start, provider):
    provider.answer = Reply("Fine", thinking="Hm")
    first, second = start(setting(), setting())
    finish(workspace)

    body = page.get(f"{base}/experiments/rows?jobs={first['id']},{second['id']}&limit=2").json()

    assert (body["total"], len(body["rows"])) == (3, 2)
    row = body["rows"][0]
    assert row["inputs"]["question"].startswith("Question")
    assert row["reference"] is None
    [result] = row["results"]["B"]
    assert result["status"] == "succeeded"
    assert result["message"] == {"role": "ai", "content": "Fine", "thinking": "Hm"}
    assert result["usage"] == {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    assert result["cost"] == pytest.approx((60 * 0.4 + 40 * 0.1 + 20 * 1.6) / 1e6)


def test_estimate_counts_matching_examples_and_costs(page, workspace, base, dataset):
    text = {"role": "human", "content": "{question} {tone}"}
    body = body_of(dataset, setting(model={"max_tokens": 100}), setting(text), repetitions=2)

    result = send(page, f"{base}/experiments/estimate", body).json()

    assert (result["examples"], result["runs"]) == (3, 12)
    first, second = result["columns"]
    assert (first["matching"], first["missing"]) == (3, [])
    assert first["cost"] == pytest.approx((32 * 0.4 + 600 * 1.6) / 1e6, rel=0.01)
    assert (second["matching"], second["missing"], second["cost"]) == (0, ["tone"], 0.0)
    assert not ExperimentJob.unscoped.exists()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"repetitions": 0}, 422),
        ({"concurrency": 1000}, 422),
        ({"columns": []}, 422),
        ({"splits": ["none"]}, 422),
        ({"as_of": "none"}, 404),
        ({"mapping": {"question": "a..b"}}, 422),
        ({"mapping": {"question": "{{x}}"}}, 422),
        ({"name": ""}, 422),
        ({"dataset_id": "00000000-0000-0000-0000-000000000001"}, 404),
        ({"columns": [{"letter": "A", "setting": setting(model={"provider": "x"})}]}, 422),
        ({"evaluators": []}, 422),
        ({"columns": [{"letter": "A", "setting": setting(name="x" * 300)}]}, 422),
        (
            {
                "columns": [
                    {
                        "letter": "A",
                        "setting": setting({"role": "human", "content": "x" * 2_100_000}),
                    }
                ]
            },
            422,
        ),
    ],
)
def test_bad_experiment_is_refused_whole(page, base, dataset, fields, status):
    response = send(page, f"{base}/experiments", body_of(dataset) | fields)

    assert response.status_code == status
    assert not ExperimentJob.unscoped.exists()
    assert not Project.unscoped.exists()


def test_experiment_without_a_key_is_refused(page, workspace, base, dataset):
    set_secrets(workspace_id=workspace.pk, values={"OPENAI_API_KEY": None})

    response = send(page, f"{base}/experiments", body_of(dataset))

    assert (response.status_code, response.json()["code"]) == (409, "no_provider_key")
    assert not ExperimentJob.unscoped.exists()


def test_viewers_see_progress_and_start_nothing(workspace, base, dataset, start):
    [job] = start()
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    assert progress(viewer, base, job)[0]["status"] == "running"
    assert send(viewer, f"{base}/experiments", body_of(dataset)).status_code == 403
    assert viewer.post(f"{base}/experiments/{job['id']}/cancel").status_code == 403
    assert viewer.post(f"{base}/experiments/{job['id']}/resume").status_code == 403


def test_old_calls_are_deleted_and_results_stay(workspace, start, provider):
    [job] = start()
    finish(workspace)
    ModelCall.unscoped.update(ended_at=timezone.now() - timedelta(days=2))

    assert model_calls.delete_old() == 3

    assert len(roots_of(workspace, job)) == 3


def test_call_whose_workers_die_again_and_again_fails(workspace, page, base, start, provider):
    [job] = start()
    advance(workspace)
    due_at = timezone.now() - timedelta(seconds=1)
    ModelCall.unscoped.update(status="running", attempt=model_calls.MAX_ATTEMPTS, due_at=due_at)

    finish(workspace)

    [ended] = progress(page, base, job)
    assert (ended["status"], ended["failed"]) == ("completed", 3)
    assert provider.requests == []
    assert {root.value(Payload.ERROR) for root in roots_of(workspace, job)} == {
        "6 attempts were interrupted."
    }
