"""Renders experiment jobs as JSON."""

from __future__ import annotations

from typing import Any

from apps.experiment_jobs.models import ExperimentJob


def job_json(job: ExperimentJob) -> dict[str, Any]:
    """Return the job with its progress; it has the annotation `running_count`."""
    return {
        "id": job.pk,
        "dataset_id": job.dataset_id,
        "experiment_id": job.experiment_id,
        "experiment_name": job.experiment.name,
        "deployment_id": job.deployment_id,
        "assistant_id": job.assistant_id,
        "runner": job.runner,
        "as_of": job.version_at,
        "splits": job.splits,
        "input_mapping": job.input_mapping,
        "repetitions": job.repetitions,
        "concurrency": job.concurrency,
        "status": job.status,
        "total": job.total_count,
        "done": job.succeeded_count,
        "failed": job.failed_count,
        "running": job.running_count,  # type: ignore[attr-defined]
        "error": job.error or None,
        "created_at": job.created_at,
        "ended_at": job.ended_at,
    }
