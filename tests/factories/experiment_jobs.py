from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from apps.agent_server.services.assistants import system_assistant_id
from apps.deployments.models import Deployment
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.tracing.models import Project


def create_job_row(agent: Deployment, mark: str, *, dataset_id: UUID, example_id: UUID) -> UUID:
    """The id of an unfinished job with one step and an experiment, marked with the name."""
    experiment = Project(
        workspace=agent.workspace, name=f"job of {mark}", reference_dataset_id=dataset_id
    )
    experiment.save()
    job = ExperimentJob(
        workspace=agent.workspace,
        dataset_id=dataset_id,
        experiment=experiment,
        deployment=agent,
        assistant_id=system_assistant_id("agent"),
        version_at=timezone.now(),
        splits=[mark],
        input_mapping={mark: mark},
        repetitions=1,
        concurrency=1,
        total_count=1,
        error=mark,
    )
    job.save()
    step = ExperimentStep(
        workspace=agent.workspace, job=job, example_id=example_id, repetition=1, position=0
    )
    step.save()
    return job.pk
