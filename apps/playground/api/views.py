"""The playground's API: saved settings, prompts, queries in words, experiments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.api_keys.authentication import api_key_from_headers
from apps.api_keys.live_reauth import (
    Credential,
    key_credential,
    revalidating,
    session_credential,
)
from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.callers import Caller
from apps.core.http.loop_response import LoopResponse
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.core.tenancy import get_or_404
from apps.datasets.api.request_schema import request_schema
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.versions import resolve_as_of
from apps.datasets.wire import parse_splits
from apps.deployments.models import Deployment
from apps.experiment_jobs.api.rendering import job_json
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.services import jobs
from apps.experiment_jobs.services.jobs import MAX_CONCURRENCY, MAX_REPETITIONS, JobPlan
from apps.experiment_jobs.services.jobs import START_PERMISSIONS as AGENT_PERMISSIONS
from apps.experiment_jobs.statuses import StepStatus
from apps.organizations.models import User
from apps.organizations.permissions import Permission
from apps.playground.errors import BadSetting
from apps.playground.manifests import read_manifest
from apps.playground.models import SavedSettings
from apps.playground.services import call_records, experiments, query_writing, saved_settings
from apps.playground.services.completion import complete_recorded
from apps.playground.services.experiments import START_PERMISSIONS, ExperimentBody
from apps.playground.services.streaming import ColumnCall, prepare_column
from apps.playground.setting import (
    PromptColumn,
    PromptReference,
    Setting,
    StreamBody,
    decode,
    message_of,
)
from apps.playground.views import EVENT_STREAM, STREAM_HEADERS
from apps.playground.wire import (
    CanvasBody,
    GenerateQueryBody,
    InvokePromptBody,
    PlaygroundExperimentBody,
    SavedSettingsBody,
    SavedSettingsChanges,
    StudioExperimentBody,
)
from apps.prompts.manifest import validate_manifest
from apps.prompts.services.lookup import OWN, find_commit, find_repository
from apps.prompts.services.lookup import read_manifest as load_manifest
from apps.providers.chat import ChatMessage, ModelSettings

if TYPE_CHECKING:
    from apps.organizations.models import User

MAX_PAGE_SIZE = 100
POLL_SECONDS = 0.5
MAX_STREAM_SECONDS = 3600.0
_CANVAS = """\
You edit the text of a prompt for a language model. Apply what the person asks for{part}, and keep
the rest as it is. Keep the variables: the template format is {template_format}. Reply with the
whole new text of the prompt alone."""


class PlaygroundSettingsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.PROMPTS_READ, "*": Permission.PROMPTS_WRITE}

    @extend_schema(responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """List the saved settings of models, newest first."""
        rows = SavedSettings.objects.for_workspace(self.workspace_id).order_by("-created_at", "pk")
        return Response([saved_settings.as_json(row) for row in rows])

    @extend_schema(request=request_schema(SavedSettingsBody), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Save the settings of a model."""
        body = decode(request.body, SavedSettingsBody)
        return Response(
            saved_settings.as_json(saved_settings.create(caller=request.auth, body=body))
        )


class PlaygroundSettingsDetailView(WorkspaceAPIView):
    required_permission = {"GET": Permission.PROMPTS_READ, "*": Permission.PROMPTS_WRITE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, playground_settings_id: UUID) -> Response:
        """Return saved settings of a model."""
        return Response(saved_settings.as_json(self._find(playground_settings_id)))

    @extend_schema(request=request_schema(SavedSettingsChanges), responses=dict)
    def patch(self, request: ApiRequest, playground_settings_id: UUID) -> Response:
        """Change saved settings of a model; absent fields stay."""
        row = self._find(playground_settings_id)
        changes = decode(request.body, SavedSettingsChanges)
        return Response(saved_settings.as_json(saved_settings.update(row=row, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, playground_settings_id: UUID) -> Response:
        """Delete saved settings of a model."""
        self._find(playground_settings_id).delete()
        return Response(status=204)

    def _find(self, settings_id: UUID) -> SavedSettings:
        return saved_settings.get(self.workspace_id, settings_id)


class InvokePromptView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_WRITE

    @extend_schema(request=request_schema(InvokePromptBody), responses=dict)
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Fill in the variables of messages and run them on a model with the workspace's key.

        Without `model`, a small model of the first provider with a key.
        """
        body = decode(request.body, InvokePromptBody)
        setting = Setting(
            [message_of(role, text) for role, text in body.messages],
            _model(request.auth, body.model),
            template_format=body.template_format,
        )
        column = prepare_column(request.auth, StreamBody(setting, variables=body.inputs))
        return _respond(_invoke(column))


async def _invoke(column: ColumnCall) -> AsyncGenerator[bytes, None]:
    execution, result = await complete_recorded(column)
    usage, model = result.usage, column.record.chat.model
    cost = await in_thread(
        call_records.compute_cost, column.workspace_id, model, usage, column.record.started_at
    )
    yield dumps(
        {
            "content": execution.reply.text,
            "message": msgspec.to_builtins(execution.reply.message()),
            "usage": None if usage is None else usage.as_json(),
            "cost": cost,
            "run_id": column.record.run_id,
        }
    )


class CanvasView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_WRITE

    @extend_schema(request=request_schema(CanvasBody), responses=dict)
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Let a model edit the text of a prompt as the messages ask for."""
        body = decode(request.body, CanvasBody)
        if not body.messages:
            raise BadSetting("`messages` has to say what is to change.")
        part = "" if body.highlighted is None else " in the highlighted part"
        system = _CANVAS.format(part=part, template_format=body.template_format)
        text = f"The prompt:\n\n{body.artifact}"
        if body.highlighted is not None:
            if body.highlighted not in body.artifact:
                raise BadSetting("`highlighted` is not a part of `artifact`.")
            text += f"\n\nThe highlighted part:\n\n{body.highlighted}"
        setting = Setting(
            [
                ChatMessage("system", system),
                ChatMessage("human", text),
                *(message_of(role, content) for role, content in body.messages),
            ],
            _model(request.auth, body.model),
            name="Prompt canvas",
            template_format="none",
        )
        column = prepare_column(request.auth, StreamBody(setting))
        return _respond(_edit(column))


async def _edit(column: ColumnCall) -> AsyncGenerator[bytes, None]:
    execution, _ = await complete_recorded(column)
    yield dumps({"artifact": execution.reply.text, "run_id": column.record.run_id})


class GenerateQueryView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_WRITE

    @extend_schema(request=request_schema(GenerateQueryBody), responses=dict)
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Write a query of runs from words: `query` for the bar of lists, `filter` for the API."""
        request.auth.require(Permission.RUNS_READ)
        body = decode(request.body, GenerateQueryBody)
        if not 0 < len(body.query.strip()) <= query_writing.MAX_WORDS_LENGTH:
            raise BadSetting(f"`query` has 1 to {query_writing.MAX_WORDS_LENGTH} characters.")
        caller = request.auth
        model = _model(caller, body.model)
        call, chat = query_writing.prepare_query(caller, body.query, model, body.feedback_keys)

        async def write() -> AsyncGenerator[bytes, None]:
            written = await query_writing.write_query(call, chat)
            yield dumps({"query": written.query, "filter": written.filter})

        return _respond(write())


def _respond(stream: AsyncGenerator[bytes, None]) -> LoopResponse:
    return LoopResponse(stream, content_type="application/json")


def _model(caller: Caller, chosen: ModelSettings | None) -> ModelSettings:
    return chosen or query_writing.choose_model(caller)


class PlaygroundExperimentView(WorkspaceAPIView):
    """Runs a prompt over a dataset; the response is the job."""

    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=request_schema(PlaygroundExperimentBody), responses=dict)
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Run a prompt with its model on each example; poll `/experiment-jobs/{id}` for the end."""
        job = _create_job(request)
        return Response(job_json(job))


class PlaygroundExperimentStreamView(WorkspaceAPIView):
    """Runs a prompt over a dataset; the response streams the results."""

    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(
        request=request_schema(PlaygroundExperimentBody),
        responses={(200, "text/event-stream"): str},
    )
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Run a prompt with its model on each example, and stream the results as they come.

        The experiment continues if the reader leaves, and after the hour at which a stream ends.
        """
        job = _create_job(request)
        stream = _stream_results(request.auth, job, _credential_of(request))
        return LoopResponse(stream, content_type=EVENT_STREAM, headers=STREAM_HEADERS)


def _credential_of(request: ApiRequest) -> Credential:
    """What the reader of a stream has to keep: the key, or the session."""
    permission, workspace_id = Permission.EXPERIMENTS_READ, request.auth.workspace_id
    if secret := api_key_from_headers(request.headers):
        return key_credential(secret, workspace_id, permission)
    key, user = request.session.session_key or "", cast("User", request.user)
    return session_credential(key, user, workspace_id, permission)


def _create_job(request: ApiRequest) -> ExperimentJob:
    for permission in START_PERMISSIONS:
        request.auth.require(permission)
    body = decode(request.body, PlaygroundExperimentBody)
    if body.secrets:
        raise BadSetting("`secrets` must be empty: keys are secrets of the workspace.")
    experiment = ExperimentBody(
        body.dataset_id,
        [PromptColumn("A", _read_setting(request.auth, body))],
        as_of=body.as_of,
        splits=body.dataset_splits,
        mapping=body.mapping,
        repetitions=body.repetitions,
        concurrency=body.batch_size,
        evaluator_rule_ids=body.evaluator_rule_ids,
    )
    [job] = experiments.create_experiments(
        caller=request.auth, body=experiment, project_name=body.project_name
    )
    return job


def _read_setting(caller: Caller, body: PlaygroundExperimentBody) -> Setting:
    if (body.manifest is None) == (body.repo_handle is None):
        raise BadSetting("Send either a `manifest` or a `repo_handle`.")
    if body.manifest is not None:
        if body.commit is not None:
            raise BadSetting("`commit` belongs to a `repo_handle`.")
        setting, _ = read_manifest(validate_manifest(body.manifest))
    else:
        caller.require(Permission.PROMPTS_READ)
        repository = find_repository(caller.workspace_id, OWN, body.repo_handle or "")
        commit = find_commit(repository, body.commit or "latest")
        setting, _ = read_manifest(load_manifest(commit))
        setting.prompt = PromptReference(repository.handle, commit.commit_hash)
    if not setting.model.model:
        raise BadSetting("The prompt has no model.")
    return setting


@dataclass
class _SentResults:
    """The positions of sent results: all before `first`, and the few that ended out of order."""

    first: int = 0
    others: set[int] = field(default_factory=set)

    def add(self, positions: Iterable[int]) -> None:
        self.others.update(positions)
        while self.first in self.others:
            self.others.remove(self.first)
            self.first += 1


async def _stream_results(
    caller: Caller, job: ExperimentJob, credential: Credential
) -> AsyncGenerator[bytes, None]:
    refusals: list[core_errors.AppError] = []
    with revalidating(credential, refusals.append):
        yield _event("start", job_json(job))
        sent = _SentResults()
        deadline = time.monotonic() + MAX_STREAM_SECONDS
        while True:
            progress, results = await in_thread(_read_results, caller, job.pk, sent)
            if refusals:
                yield _event("error", refusals[0].as_json())
                return
            for result in results:
                yield _event("result", result)
            if progress["status"] not in {"running", "cancelling"} or time.monotonic() > deadline:
                yield _event("end", progress)
                return
            yield b": ping\n\n"
            await asyncio.sleep(POLL_SECONDS)


def _read_results(
    caller: Caller, job_id: UUID, sent: _SentResults
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the progress, and the results that were not sent yet, which count as sent then."""
    # Read before the results, so that none of a finished job is missing.
    job = jobs.get_job(caller.workspace_id, job_id)
    steps = ExperimentStep.objects.for_workspace(caller.workspace_id).filter(job=job)
    ended = steps.filter(
        status__in=[StepStatus.SUCCEEDED, StepStatus.FAILED], position__gte=sent.first
    )
    rest = ended.exclude(position__in=sent.others).order_by("position")
    new = list(rest[:MAX_PAGE_SIZE])
    sent.add(step.position for step in new)
    is_more = len(new) == MAX_PAGE_SIZE
    progress = {**job_json(job), **({"status": "running"} if is_more else {})}
    return progress, experiments.step_results(caller, job, new)


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(data))


class StudioExperimentView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=request_schema(StudioExperimentBody), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Run a deployed agent on each example of a dataset, as `/experiment-jobs` does."""
        for permission in AGENT_PERMISSIONS:
            request.auth.require(permission)
        body = decode(request.body, StudioExperimentBody)
        if not 1 <= body.repetitions <= MAX_REPETITIONS:
            raise core_errors.Invalid(f"`repetitions` must be from 1 to {MAX_REPETITIONS}.")
        if not 1 <= body.batch_size <= MAX_CONCURRENCY:
            raise core_errors.Invalid(f"`batch_size` must be from 1 to {MAX_CONCURRENCY}.")
        dataset = get_dataset(self.workspace_id, body.dataset_id)
        deployments = Deployment.objects.for_workspace(self.workspace_id).present()
        plan = JobPlan(
            dataset=dataset,
            deployment=get_or_404(deployments, pk=body.deployment_id),
            assistant_id=body.assistant_id,
            version_at=resolve_as_of(dataset, body.as_of),
            splits=parse_splits(body.dataset_splits),
            input_mapping=body.input_mapping,
            repetitions=body.repetitions,
            concurrency=body.batch_size,
            name=experiments.clean_project_name(body.project_name),
            evaluator_rule_ids=body.evaluator_rule_ids,
        )
        job = jobs.create_job(plan=plan, user_id=request.auth.user_id)
        return Response(job_json(jobs.get_job(self.workspace_id, job.pk)))
