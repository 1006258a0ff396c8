"""Endpoints of experiments that the platform runs on a deployed agent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.datasets.api.queries import DatasetPageSerializer, query_params
from apps.datasets.api.request_schema import request_schema
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.versions import resolve_as_of
from apps.datasets.wire import clean_name, decode, parse_splits, storable_json
from apps.deployments.models import Deployment
from apps.experiment_jobs.api.rendering import job_json
from apps.experiment_jobs.services import jobs
from apps.experiment_jobs.services.jobs import (
    MAX_CONCURRENCY,
    MAX_PREFIX_LENGTH,
    MAX_REPETITIONS,
    START_PERMISSIONS,
    JobPlan,
)
from apps.experiment_jobs.wire import WireExperimentJob
from apps.organizations.permissions import Permission

MAX_NAME_LENGTH = 1000


class ExperimentJobsView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.EXPERIMENTS_READ,
        "*": Permission.EXPERIMENTS_WRITE,
    }

    @extend_schema(parameters=[DatasetPageSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return a page of the dataset's experiment jobs with their progress, newest first."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(DatasetPageSerializer, request)
        rows = jobs.list_jobs(self.workspace_id).filter(dataset=dataset)
        first, limit = params["offset"], params["limit"]
        return Response(
            [job_json(job) for job in rows.newest_first()[first : first + limit]],
            headers={"X-Pagination-Total": str(rows.count())},
        )

    @extend_schema(request=request_schema(WireExperimentJob), responses={201: dict})
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Run an experiment on a deployment: the agent runs on each example of the dataset."""
        for permission in START_PERMISSIONS:
            request.auth.require(permission)
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireExperimentJob)
        deployments = Deployment.objects.for_workspace(self.workspace_id).present()
        plan = JobPlan(
            dataset=dataset,
            deployment=get_or_404(deployments, pk=wire.deployment_id),
            assistant_id=wire.assistant_id,
            version_at=resolve_as_of(dataset, wire.as_of),
            splits=parse_splits(wire.splits or []),
            input_mapping=None if wire.input_mapping is None else storable_json(wire.input_mapping),
            repetitions=_bounded(wire.repetitions, 1, MAX_REPETITIONS, "repetitions"),
            concurrency=_bounded(wire.concurrency, 4, MAX_CONCURRENCY, "concurrency"),
            name=_clean(wire.experiment_name, MAX_NAME_LENGTH),
            prefix=_clean(wire.experiment_prefix, MAX_PREFIX_LENGTH),
            description=wire.description and wire.description.replace("\x00", "\ufffd"),
            metadata=storable_json(wire.metadata or {}),
            evaluator_rule_ids=wire.evaluator_rule_ids,
        )
        job = jobs.create_job(plan=plan, user_id=request.auth.user_id)
        return Response(job_json(jobs.get_job(self.workspace_id, job.pk)), status=201)


def _bounded(value: int | None, default: int, maximum: int, field: str) -> int:
    if value is None:
        return default
    if not 1 <= value <= maximum:
        raise core_errors.Invalid(f"`{field}` must be a number from 1 to {maximum}.")
    return value


def _clean(name: str | None, length: int) -> str | None:
    return None if name is None else clean_name(name, length)


class ExperimentJobView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_READ

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, job_id: UUID) -> Response:
        """Return the job with its progress."""
        return Response(job_json(jobs.get_job(self.workspace_id, job_id)))


class CancelExperimentJobView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, job_id: UUID) -> Response:
        """Start no further runs and stop the open ones; finished runs keep their results."""
        job = jobs.get_job(self.workspace_id, job_id)
        jobs.cancel_job(job=job)
        return Response(job_json(jobs.get_job(self.workspace_id, job_id)))


class ResumeExperimentJobView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, job_id: UUID) -> Response:
        """Continue an ended job with the rows that have no result; failed ones run again."""
        job = jobs.get_job(self.workspace_id, job_id)
        for permission in START_PERMISSIONS:
            request.auth.require(permission)
        jobs.resume_job(job=job)
        return Response(job_json(jobs.get_job(self.workspace_id, job_id)))
