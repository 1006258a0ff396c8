"""The form that starts an experiment on a deployment, and the progress of jobs."""

from __future__ import annotations

import re

import pytest

from apps.experiment_jobs.models import ExperimentJob
from apps.experiment_jobs.services import jobs
from tests.console.conftest import create_workspace_user, signed_in
from tests.experiment_jobs.conftest import advance, end, open_runs
from tests.factories.datasets import make_dataset

pytestmark = pytest.mark.django_db


@pytest.fixture
def url(workspace, dataset):
    return f"/o/{workspace.pk}/datasets/{dataset.pk}/experiments"


@pytest.fixture
def fields(agent):
    return {
        "deployment": str(agent.pk),
        "version": "latest",
        "repetitions": "2",
        "concurrency": "3",
    }


def text_of(response):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def test_viewers_see_progress_and_start_nothing(workspace, url, start, fields):
    job = start()
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    progress = viewer.get(f"{url}/jobs")

    assert job.experiment.name in text_of(progress)
    assert "Cancel" not in text_of(progress)
    assert viewer.get(f"{url}/run").status_code == 403
    assert viewer.post(f"{url}/run", fields).status_code == 403
    cancel = f"/o/{workspace.pk}/experiment-jobs/{job.pk}/cancel"
    assert viewer.post(cancel).status_code == 403
    assert ExperimentJob.unscoped.get().status == "running"


def test_form_starts_an_experiment(page, workspace, dataset, url, fields):
    form = page.get(f"{url}/run")
    assert "questions" in text_of(form)

    response = page.post(
        f"{url}/run",
        {**fields, "name": "nightly", "mapping": '{"q": "{{question}}"}', "split": "base"},
    )

    assert response.status_code == 302
    job = ExperimentJob.unscoped.get()
    assert (job.total_count, job.concurrency, job.splits) == (6, 3, ["base"])
    assert job.input_mapping == {"q": "{{question}}"}
    assert job.experiment.name.startswith("nightly-")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mapping": "{"}, "not JSON"),
        ({"mapping": '{"q": "{{}}"}'}, "not a path"),
        ({"assistant": "unknown"}, "Invalid assistant"),
        ({"repetitions": "0"}, "greater than or equal to 1"),
    ],
)
def test_invalid_fields_are_explained_in_the_form(page, url, fields, change, message):
    response = page.post(f"{url}/run", {**fields, **change})

    assert response.status_code == 422
    assert message in text_of(response)
    assert not ExperimentJob.unscoped.exists()


def test_form_without_a_deployment_leads_to_the_deployments(page, workspace):
    dataset = make_dataset(workspace, {"q": 1}, name="alone")

    response = page.get(f"/o/{workspace.pk}/datasets/{dataset.pk}/experiments/run")

    assert "No deployment serves yet" in text_of(response)


def test_progress_refreshes_until_the_jobs_have_ended(page, url, start):
    assert "hx-get" not in page.get(f"{url}/jobs").content.decode()
    job = start(concurrency=2)
    advance(job)
    end(open_runs(job)[0], values={})
    advance(job)

    running = page.get(f"{url}/jobs")

    assert "1 of 3 runs" in text_of(running)
    assert 'hx-trigger="every 2s"' in running.content.decode()
    for _ in range(2):
        for run in open_runs(job):
            end(run, "error", error={"error": "ValueError", "message": "no"}, values={})
        advance(job)
    ended = page.get(f"{url}/jobs")
    assert "3 of 3 runs, 2 failed" in text_of(ended)
    assert "hx-get" not in ended.content.decode()


def test_cancel_button_cancels_the_job(page, workspace, url, start):
    job = start()
    assert "Cancel" in text_of(page.get(f"{url}/jobs"))

    response = page.post(f"/o/{workspace.pk}/experiment-jobs/{job.pk}/cancel")

    assert response.status_code == 302
    advance(job)
    assert job.status == "cancelled"
    again = page.post(f"/o/{workspace.pk}/experiment-jobs/{job.pk}/cancel", follow=True)
    assert "already finished" in text_of(again)
    assert not jobs.list_jobs(workspace.pk).unfinished().exists()
