"""Runs experiments on models: each step is a call that a worker makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from django.utils import timezone

from apps.core.errors import AppError
from apps.core.json import dumps
from apps.experiment_jobs.dotted_orders import step_dotted_order
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.runners import ExperimentRunEnd, PreparedTarget
from apps.playground import dispatch
from apps.playground.models import CallStatus, ModelCall
from apps.playground.services.streaming import build_chat
from apps.playground.setting import Setting, convert
from apps.providers.catalogue import PROVIDERS
from apps.providers.client import find_keys
from apps.providers.errors import NoProviderKey

RUNNER = "model"
"""The name of the runner in jobs."""
OPEN = (CallStatus.PENDING, CallStatus.RUNNING)


def prepare_model(letter: str, setting: Setting) -> PreparedTarget:
    """Return the target of a job for a checked setting."""
    model, prompt = setting.model, setting.prompt
    metadata: dict[str, Any] = {
        "playground_letter": letter,
        "ls_provider": PROVIDERS[model.provider].tracing_name,
        "ls_model_name": model.model,
    }
    if prompt is not None:
        metadata |= {"lc_hub_repo": prompt.repo, "lc_hub_commit_hash": prompt.commit}
    name = prompt.repo if prompt is not None else setting.name or "playground"
    content = {"letter": letter, "setting": msgspec.to_builtins(setting)}
    return PreparedTarget(name=name, metadata=metadata, content=content)


def setting_of(job: ExperimentJob) -> Setting:
    return convert((job.target or {})["setting"], Setting)


def letter_of(job: ExperimentJob) -> str:
    return str((job.target or {})["letter"])


class ModelRunner:
    """The runner of jobs on the setting of a column."""

    def check(self, job: ExperimentJob) -> bool:
        provider = PROVIDERS[setting_of(job).model.provider]
        if provider.needs_key and provider.id not in find_keys(job.workspace_id):
            raise NoProviderKey(f"The workspace has no key for {provider.name}.")
        return True

    def start(self, job: ExperimentJob, step: ExperimentStep, inputs: dict[str, Any]) -> UUID:
        build_chat(setting_of(job), inputs)  # an error is the result of the step
        call = ModelCall(
            workspace_id=job.workspace_id,
            job_id=job.pk,
            step_id=step.pk,
            dotted_order=step_dotted_order(step),
            variables=inputs,
        )
        call.save(force_insert=True)
        dispatch.execute_calls()
        return call.pk

    def find_ended(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> list[UUID]:
        calls = ModelCall.objects.for_workspace(job.workspace_id).filter(pk__in=run_ids)
        open_ids = set(calls.filter(status__in=OPEN).values_list("pk", flat=True))
        return [run_id for run_id in run_ids if run_id not in open_ids]

    def read_ends(
        self, job: ExperimentJob, run_ids: Sequence[UUID]
    ) -> dict[UUID, ExperimentRunEnd]:
        calls = ModelCall.objects.for_workspace(job.workspace_id).filter(pk__in=run_ids)
        ends = {
            call.pk: ExperimentRunEnd(
                ended_at=call.ended_at,
                outputs=None if call.outputs is None else msgspec.Raw(dumps(call.outputs)),
                error=None if call.status == CallStatus.SUCCEEDED else call.error,
                is_interrupted=call.status == CallStatus.CANCELLED,
            )
            for call in calls
        }
        deleted = ExperimentRunEnd(error="The call was deleted before its result was read.")
        return {run_id: ends.get(run_id, deleted) for run_id in run_ids}

    def release(self, job: ExperimentJob, ends: Sequence[ExperimentRunEnd]) -> None:
        """Nothing to do: the calls are deleted later, with the steps."""

    def stop(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> None:
        calls = ModelCall.objects.for_workspace(job.workspace_id).filter(pk__in=run_ids)
        calls.filter(status__in=OPEN).update(
            status=CallStatus.CANCELLED,
            error="The experiment was cancelled.",
            ended_at=timezone.now(),
        )

    def root_name(self, job: ExperimentJob) -> str:
        try:
            setting = setting_of(job)
        except (AppError, KeyError):
            return job.experiment.name
        return setting.prompt.repo if setting.prompt is not None else setting.name or "Playground"
