"""The endpoints of experiment jobs."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.services.examples import create_examples
from apps.deployments.models import Deployment
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.services import jobs
from apps.tracing.models import Project
from tests.experiment_jobs.conftest import advance, end, open_runs
from tests.factories.agent_server import AgentFactory, route_of
from tests.factories.datasets import make_dataset, new_example

pytestmark = pytest.mark.django_db


def url_of(dataset):
    return f"/api/v1/datasets/{dataset.pk}/experiment-jobs"


def test_starting_needs_the_permission_to_run_agents(make_api, workspace, dataset, agent):
    body = {"deployment_id": str(agent.pk)}

    for scope in ("read", "ingest", "deploy"):
        response = make_api(workspace, scope).post(url_of(dataset), body)
        assert response.status_code == 403, scope

    assert not ExperimentJob.unscoped.exists()


def test_other_workspaces_see_neither_dataset_nor_job(make_api, other_workspace, dataset, start):
    job = start()
    stranger = make_api(other_workspace)

    assert stranger.get(url_of(dataset)).status_code == 404
    assert stranger.get(f"/api/v1/experiment-jobs/{job.pk}").status_code == 404
    response = stranger.post(f"/api/v1/experiment-jobs/{job.pk}/cancel", {})
    assert (response.status_code, response.json()["code"]) == (404, "experiment_job_not_found")


def test_a_job_is_an_experiment_with_a_plan(api, dataset, agent):
    response = api.post(
        url_of(dataset),
        {
            "deployment_id": str(agent.pk),
            "experiment_prefix": "nightly",
            "description": "each night",
            "metadata": {"team": "x"},
            "repetitions": 2,
            "concurrency": 3,
            "input_mapping": {"q": "{{question}}"},
        },
    )

    assert response.status_code == 201, response.content
    body = response.json()
    project = Project.unscoped.get(pk=body["experiment_id"])
    assert body["experiment_name"] == project.name
    assert project.name.startswith("nightly-")
    assert (project.description, project.reference_dataset_id) == ("each night", dataset.pk)
    assert project.plan == {"num_examples": 3, "num_repetitions": 2}
    metadata = project.extra["metadata"]
    assert (metadata["team"], metadata["deployment_name"]) == ("x", agent.name)
    assert metadata["dataset_version"] == dataset.latest_version_at.isoformat()
    assert {name: body[name] for name in ("status", "total", "done", "failed", "running")} == {
        "status": "running",
        "total": 6,
        "done": 0,
        "failed": 0,
        "running": 0,
    }
    assert ExperimentStep.unscoped.count() == 6


def test_progress_is_read_from_the_job_and_from_the_list(api, dataset, start):
    job = start(concurrency=2)
    advance(job)
    end(open_runs(job)[0], values={})
    advance(job)

    body = api.get(f"/api/v1/experiment-jobs/{job.pk}").json()
    listed = api.get(url_of(dataset), limit=1)

    assert (body["done"], body["running"], body["total"]) == (1, 2, 3)
    assert listed.json() == [body]
    assert listed["X-Pagination-Total"] == "1"


def test_the_number_of_queries_of_the_list_does_not_grow(api, dataset, start):
    start()
    api.get(url_of(dataset))
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            api.get(url_of(dataset))
        # Others are of the caller's key and of the counters of requests.
        counts.append(sum("experiment_jobs" in query["sql"] for query in queries))
        start()

    assert counts == [2, 2]


def test_cancelling_by_the_api(api, start):
    job = start()

    response = api.post(f"/api/v1/experiment-jobs/{job.pk}/cancel", {})

    assert (response.status_code, response.json()["status"]) == (200, "cancelling")
    advance(job)
    again = api.post(f"/api/v1/experiment-jobs/{job.pk}/cancel", {})
    assert (again.status_code, again.json()["code"]) == (409, "experiment_job_finished")


def test_only_examples_of_the_version_and_split_are_run(api, dataset, agent):
    version = dataset.latest_version_at
    create_examples(dataset=dataset, examples=[new_example({"question": 9}, split="new")])
    body = {"deployment_id": str(agent.pk)}

    old = api.post(url_of(dataset), {**body, "as_of": version.isoformat()})
    split = api.post(url_of(dataset), {**body, "splits": ["new"]})

    assert (old.json()["total"], split.json()["total"]) == (3, 1)
    assert split.json()["splits"] == ["new"]


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"repetitions": 0}, (422, "invalid")),
        ({"concurrency": 65}, (422, "invalid")),
        ({"unknown": 1}, (422, "invalid")),
        ({"input_mapping": {"a": "{{}}"}}, (422, "invalid_input_mapping")),
        ({"splits": ["none"]}, (422, "no_examples")),
        ({"as_of": "no such tag"}, (404, "dataset_version_not_found")),
        ({"deployment_id": str(uuid4())}, (404, "not_found")),
        ({"assistant_id": str(uuid4())}, (404, "assistant_not_found")),
        ({"experiment_name": " "}, (422, "invalid")),
    ],
)
def test_bad_requests_are_refused_and_create_nothing(api, dataset, agent, fields, refusal):
    response = api.post(url_of(dataset), {"deployment_id": str(agent.pk), **fields})

    assert (response.status_code, response.json()["code"]) == refusal
    assert not ExperimentJob.unscoped.exists()
    assert not Project.unscoped.filter(reference_dataset_id=dataset.pk).exists()


def test_a_taken_name_is_refused(api, dataset, agent):
    body = {"deployment_id": str(agent.pk), "experiment_name": "one"}
    assert api.post(url_of(dataset), body).status_code == 201

    response = api.post(url_of(dataset), body)

    assert (response.status_code, response.json()["code"]) == (409, "project_name_taken")
    assert ExperimentJob.unscoped.count() == 1


def test_an_empty_dataset_has_nothing_to_run(api, workspace, agent):
    empty = make_dataset(workspace, name="empty")

    response = api.post(url_of(empty), {"deployment_id": str(agent.pk)})

    assert (response.status_code, response.json()["code"]) == (422, "no_examples")


def test_the_numbers_of_runs_and_jobs_are_limited(api, dataset, agent, monkeypatch):
    body = {"deployment_id": str(agent.pk)}
    monkeypatch.setattr(jobs, "MAX_STEPS", 5)
    assert api.post(url_of(dataset), body).status_code == 201

    too_large = api.post(url_of(dataset), {**body, "repetitions": 2})
    monkeypatch.setattr(jobs, "MAX_OPEN_JOBS", 1)
    too_many = api.post(url_of(dataset), body)

    assert (too_large.status_code, too_large.json()["code"]) == (422, "too_many_experiment_runs")
    assert (too_many.status_code, too_many.json()["code"]) == (409, "too_many_experiment_jobs")


def test_an_assistant_is_needed_if_the_deployment_has_several_graphs(api, workspace, dataset):
    agent = AgentFactory(workspace=workspace)
    route_of(agent)

    ambiguous = api.post(url_of(dataset), {"deployment_id": str(agent.pk)})
    named = api.post(url_of(dataset), {"deployment_id": str(agent.pk), "assistant_id": "other"})

    assert ambiguous.status_code == 422, ambiguous.content
    assert named.status_code == 201


def test_a_stopped_deployment_starts_no_experiment(api, dataset, agent):
    Deployment.unscoped.filter(pk=agent.pk).update(status="UNUSED")

    response = api.post(url_of(dataset), {"deployment_id": str(agent.pk)})

    assert (response.status_code, response.json()["code"]) == (503, "agent_stopped")


def test_cancelled_jobs_count_towards_the_runs_of_a_day(api, dataset, agent, monkeypatch):
    monkeypatch.setattr(jobs, "MAX_STEPS_PER_DAY", 5)
    path, body = url_of(dataset), {"deployment_id": str(agent.pk)}
    first = api.post(path, body).json()
    api.post(f"/api/v1/experiment-jobs/{first['id']}/cancel", {})

    refused = api.post(path, body)

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_new_experiment_runs")
    assert ExperimentJob.unscoped.count() == 1
