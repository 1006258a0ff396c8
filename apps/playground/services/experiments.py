"""Runs the columns of the playground over the examples of a dataset, each as an experiment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import Sum
from django.urls import reverse
from django.utils import timezone

from apps.core import errors as core_errors
from apps.core.callers import Caller
from apps.core.json import dumps
from apps.datasets.models import Dataset
from apps.datasets.services.content import check_schema
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.versions import resolve_as_of
from apps.datasets.wire import clean_name, parse_splits
from apps.experiment_jobs import errors as job_errors
from apps.experiment_jobs.input_mapping import MissingInput, build_input
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.services import jobs
from apps.experiment_jobs.services.jobs import (
    MAX_CONCURRENCY,
    MAX_PREFIX_LENGTH,
    MAX_REPETITIONS,
    MAX_STEPS,
    JobPlan,
)
from apps.experiment_jobs.statuses import StepStatus
from apps.experiments.services.results import load_revisions
from apps.organizations.permissions import Permission
from apps.playground.errors import BadSetting
from apps.playground.models import ModelCall
from apps.playground.services import call_records, partial_replies
from apps.playground.services.model_runner import RUNNER, ModelRunner, letter_of, prepare_model
from apps.playground.services.prefill import convert_messages
from apps.playground.setting import (
    MAX_COLUMNS,
    MAX_STATE_BYTES,
    PromptColumn,
    check_setting,
    require_model,
)
from apps.playground.templates import MAX_VARIABLES, list_variables
from apps.providers.catalogue import get_provider
from apps.providers.chat import ChatUsage
from apps.trace_store import Payload, RunDetail, RunQuery, run_store
from apps.trace_store.token_estimates import BYTES_PER_TOKEN
from apps.tracing.messages.conversation import parse_messages

START_PERMISSIONS = (
    Permission.PROMPTS_WRITE,
    Permission.EXPERIMENTS_WRITE,
    Permission.PROJECTS_WRITE,
    Permission.DATASETS_READ,
)
MAX_ROWS = 100
ALL_ROWS = "all"
SHOWN_STATUSES: dict[str, tuple[StepStatus, ...]] = {
    ALL_ROWS: (),
    "running": (StepStatus.RUNNING,),
    "failed": (StepStatus.FAILED,),
}
MAX_ESTIMATED_EXAMPLES = 1000
MAX_ESTIMATED_BYTES = 20_971_520
"""What an estimate reads of examples; larger datasets are extrapolated."""
_FIRST_BATCH, _MAX_BATCH = 10, 200
ESTIMATED_OUTPUT_TOKENS = 400
MAX_PROJECT_NAME_LENGTH = 1000


class ExperimentBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Columns to run over a dataset; `mapping` names a path of the inputs for a variable."""

    dataset_id: UUID
    columns: list[PromptColumn]
    as_of: str | None = None
    splits: list[str] = []
    mapping: dict[str, str] | None = None
    repetitions: int = 1
    concurrency: int = 4
    name: str | None = None
    evaluator_rule_ids: list[UUID] | None = None
    """The rules of the dataset that score the rows; None for all enabled ones."""


def create_experiments(
    *, caller: Caller, body: ExperimentBody, project_name: str | None = None
) -> list[ExperimentJob]:
    """Create a job and an experiment for each column; `project_name` is that of a single one.

    Raises `BadSetting`, `SchemaRefused`, `UnknownProvider`, `NoProviderKey`, and the errors of
    `create_target_job`.
    """
    for permission in START_PERMISSIONS:
        caller.require(permission)
    dataset = get_dataset(caller.workspace_id, body.dataset_id)
    _check(body)
    version_at = resolve_as_of(dataset, body.as_of) or dataset.latest_version_at
    created = []
    with transaction.atomic():
        for column in body.columns:
            target = prepare_model(column.letter, column.setting)
            prefix = None if body.name is None else f"{body.name} {column.letter}"
            plan = JobPlan(
                dataset=dataset,
                version_at=version_at,
                splits=parse_splits(body.splits),
                input_mapping=_input_mapping(body.mapping),
                repetitions=body.repetitions,
                concurrency=body.concurrency,
                prefix=prefix,
                name=clean_project_name(project_name),
                evaluator_rule_ids=body.evaluator_rule_ids,
            )
            job = jobs.create_target_job(
                plan=plan, runner=RUNNER, target=target, user_id=caller.user_id
            )
            ModelRunner().check(job)
            created.append(job)
    return load_jobs(caller, [job.pk for job in created])


def clean_project_name(name: str | None) -> str | None:
    """Return the name of an experiment without control characters. Raises `Invalid`."""
    return None if name is None else clean_name(name, MAX_PROJECT_NAME_LENGTH)


def _check(body: ExperimentBody) -> None:
    if not 1 <= len(body.columns) <= MAX_COLUMNS:
        raise BadSetting(f"An experiment has 1 to {MAX_COLUMNS} columns.")
    letters = [column.letter for column in body.columns]
    if len(set(letters)) != len(letters):
        raise BadSetting("Two columns have the same letter.")
    if not 1 <= body.repetitions <= MAX_REPETITIONS:
        raise BadSetting(f"`repetitions` must be a number from 1 to {MAX_REPETITIONS}.")
    if not 1 <= body.concurrency <= MAX_CONCURRENCY:
        raise BadSetting(f"`concurrency` must be a number from 1 to {MAX_CONCURRENCY}.")
    if body.name is not None and not 0 < len(body.name.strip()) <= MAX_PREFIX_LENGTH:
        raise BadSetting(f"`name` must have 1 to {MAX_PREFIX_LENGTH} characters.")
    for column in body.columns:
        setting = column.setting
        check_setting(setting)
        require_model(setting)
        if len(msgspec.json.encode(setting)) > MAX_STATE_BYTES:
            raise BadSetting(f"A column has more than {MAX_STATE_BYTES} bytes.")
        get_provider(setting.model.provider)
        list_variables(setting)
        if setting.response_schema is not None:
            check_schema(setting.response_schema, "response_schema")


def _input_mapping(mapping: dict[str, str] | None) -> dict[str, Any] | None:
    if mapping is None:
        return None
    if len(mapping) > MAX_VARIABLES:
        raise job_errors.InvalidMapping(f"The mapping has at most {MAX_VARIABLES} variables.")
    if any("{" in path or "}" in path for path in mapping.values()):
        raise job_errors.InvalidMapping("A path of the mapping has no braces.")
    return {variable: f"{{{{{path}}}}}" for variable, path in mapping.items()}


def load_jobs(caller: Caller, job_ids: Sequence[UUID]) -> list[ExperimentJob]:
    """Return the playground's jobs with these ids, in this order; missing ones are left out."""
    rows = jobs.list_jobs(caller.workspace_id).filter(pk__in=job_ids, runner=RUNNER)
    by_id = {job.pk: job for job in rows}
    return [by_id[job_id] for job_id in dict.fromkeys(job_ids) if job_id in by_id]


def get_job(caller: Caller, job_id: UUID) -> ExperimentJob:
    """Raises `JobNotFound`, also for jobs of other runners."""
    rows = load_jobs(caller, [job_id])
    if not rows:
        raise job_errors.JobNotFound
    return rows[0]


def jobs_json(caller: Caller, rows: Sequence[ExperimentJob]) -> list[dict[str, Any]]:
    """Return the progress of the jobs as JSON; they have the annotation `running_count`."""
    calls = ModelCall.objects.for_workspace(caller.workspace_id)
    sums = calls.filter(job_id__in=[job.pk for job in rows]).values_list("job_id")
    costs = dict(sums.annotate(total=Sum("cost")))
    return [_job_json(job, costs.get(job.pk)) for job in rows]


def _job_json(job: ExperimentJob, cost: float | None) -> dict[str, Any]:
    compare = reverse("dataset-experiments-compare", args=[job.workspace_id, job.dataset_id])
    return {
        "id": job.pk,
        "letter": letter_of(job),
        "dataset_id": job.dataset_id,
        "experiment_id": job.experiment_id,
        "experiment_name": job.experiment.name,
        "experiment_url": f"{compare}?e={job.experiment_id}",
        "status": job.status,
        "total": job.total_count,
        "done": job.succeeded_count,
        "failed": job.failed_count,
        "running": job.running_count,  # type: ignore[attr-defined]
        "cost": cost,
        "remaining_seconds": _estimate_remaining(job),
        "error": job.error or None,
    }


def _estimate_remaining(job: ExperimentJob) -> int | None:
    """Seconds until the end at the pace so far; None without a pace."""
    if not job.is_open or not job.finished_count:
        return None
    elapsed: timedelta = timezone.now() - job.created_at
    left = job.total_count - job.finished_count
    return math.ceil(elapsed.total_seconds() / job.finished_count * left)


def estimate(*, caller: Caller, body: ExperimentBody) -> dict[str, Any]:
    """Return how many examples have values for all variables, and about what the run costs.

    Tokens are estimated from the lengths of texts; replies count 400 tokens or `max_tokens`.
    """
    caller.require(Permission.DATASETS_READ)
    dataset = get_dataset(caller.workspace_id, body.dataset_id)
    _check(body)
    version_at = resolve_as_of(dataset, body.as_of) or dataset.latest_version_at
    ids = jobs.find_examples(
        dataset, version_at, parse_splits(body.splits), MAX_STEPS // body.repetitions
    )
    inputs = _sample_inputs(dataset, ids[:MAX_ESTIMATED_EXAMPLES], version_at)
    scale = len(ids) / len(inputs) if inputs else 0.0
    columns = [_estimate_column(caller, column, body, inputs, scale) for column in body.columns]
    costs = [column["cost"] for column in columns]
    return {
        "examples": len(ids),
        "runs": len(ids) * body.repetitions * len(body.columns),
        "columns": columns,
        "cost": None if None in costs else sum(costs),
    }


def _sample_inputs(
    dataset: Dataset, ids: Sequence[UUID], version_at: datetime
) -> list[dict[str, Any]]:
    """Return the inputs of the first examples, about `MAX_ESTIMATED_BYTES`."""
    inputs: list[dict[str, Any]] = []
    size, count = 0, _FIRST_BATCH
    while len(inputs) < len(ids) and size < MAX_ESTIMATED_BYTES:
        batch = ids[len(inputs) : len(inputs) + count]
        revisions = load_revisions(dataset, batch, version_at)
        if not revisions:
            break
        inputs += [revision.inputs for revision in revisions.values()]
        size += sum(len(dumps(revision.inputs)) for revision in revisions.values())
        average = max(1, size // len(inputs))
        count = max(1, min(_MAX_BATCH, (MAX_ESTIMATED_BYTES - size) // average))
    return inputs


def _estimate_column(
    caller: Caller,
    column: PromptColumn,
    body: ExperimentBody,
    inputs: Sequence[dict[str, Any]],
    scale: float,
) -> dict[str, Any]:
    setting, mapping = column.setting, _input_mapping(body.mapping)
    names = list_variables(setting)
    fixed = sum(len(message.text) for message in setting.messages)
    matching, size, missing = 0, 0, set[str]()
    for item in inputs:
        try:
            variables = build_input(mapping, item)
        except (MissingInput, job_errors.InputTooLarge) as error:
            missing.add(str(error))
            continue
        absent = [name for name in names if name not in variables]
        missing.update(absent)
        if not absent:
            matching += 1
            size += fixed + sum(len(str(variables[name])) for name in names)
    runs = scale * body.repetitions
    output = min(setting.model.max_tokens or ESTIMATED_OUTPUT_TOKENS, ESTIMATED_OUTPUT_TOKENS)
    usage = ChatUsage(math.ceil(size / BYTES_PER_TOKEN * runs), math.ceil(matching * output * runs))
    return {
        "letter": column.letter,
        "matching": round(matching * scale),
        "missing": sorted(missing),
        "cost": call_records.compute_cost(
            caller.workspace_id, setting.model, usage, timezone.now()
        ),
    }


def load_rows(
    caller: Caller, job_ids: Sequence[UUID], *, offset: int, limit: int, shown: str = ALL_ROWS
) -> dict[str, Any]:
    """Return the examples of the jobs, which are on one dataset version, with their results.

    `shown` keeps the examples with a result in one of its statuses: a key of `SHOWN_STATUSES`.
    The steps of jobs that ended more than a day ago are deleted: their results are on the page
    that compares experiments.
    """
    rows = load_jobs(caller, job_ids)
    if not rows:
        raise job_errors.JobNotFound
    if len({(job.dataset_id, job.version_at) for job in rows}) > 1:
        raise core_errors.Invalid("The jobs are on different datasets or versions.")
    if not 1 <= limit <= MAX_ROWS or offset < 0:
        raise core_errors.Invalid(f"`limit` must be from 1 to {MAX_ROWS}.")
    steps = ExperimentStep.objects.for_workspace(caller.workspace_id).filter(job__in=rows)
    if shown not in SHOWN_STATUSES:
        raise core_errors.Invalid(f"`show` must be one of {', '.join(SHOWN_STATUSES)}.")
    first = steps.filter(job=rows[0], repetition=1).order_by("position")
    if statuses := SHOWN_STATUSES[shown]:
        matching = steps.filter(status__in=statuses).values("example_id")
        first = first.filter(example_id__in=matching)
    total = first.count()
    example_ids = list(first.values_list("example_id", flat=True)[offset : offset + limit])
    page = list(steps.filter(example_id__in=example_ids).order_by("repetition"))
    results = _load_results(caller, rows, page)
    dataset: Dataset = get_dataset(caller.workspace_id, rows[0].dataset_id)
    revisions = load_revisions(dataset, example_ids, rows[0].version_at)
    return {
        "total": total,
        "rows": [
            {
                "example_id": example_id,
                "inputs": revisions[example_id].inputs if example_id in revisions else {},
                "reference": revisions[example_id].outputs if example_id in revisions else None,
                "results": results[example_id],
            }
            for example_id in example_ids
        ],
    }


def step_results(
    caller: Caller, job: ExperimentJob, steps: Sequence[ExperimentStep]
) -> list[dict[str, Any]]:
    """Return the results of steps of one job, with their examples."""
    runs = _load_runs(caller, [job], steps)
    return [
        {
            "example_id": step.example_id,
            **_result_json(step, runs.get(step.pk), _call_run(runs, step), None),
        }
        for step in steps
    ]


def _call_run(runs: dict[UUID, RunDetail], step: ExperimentStep) -> RunDetail | None:
    return runs.get(step.agent_run_id) if step.agent_run_id else None


def _load_runs(
    caller: Caller, rows: Sequence[ExperimentJob], steps: Sequence[ExperimentStep]
) -> dict[UUID, RunDetail]:
    """The root runs of steps and the runs of their calls."""
    run_ids = [run_id for step in steps for run_id in (step.pk, step.agent_run_id) if run_id]
    if not run_ids:
        return {}
    query = RunQuery(project_ids=[job.experiment_id for job in rows], run_ids=run_ids)
    page = run_store.query(
        caller.workspace_id,
        query,
        limit=len(run_ids),
        payloads=[Payload.OUTPUTS, Payload.ERROR],
    )
    return {run.row.id: run for run in page.runs}


def _load_results(
    caller: Caller, rows: Sequence[ExperimentJob], steps: Sequence[ExperimentStep]
) -> dict[UUID, dict[str, list[dict[str, Any]]]]:
    """The results by example and letter."""
    runs = _load_runs(caller, rows, steps)
    letters = {job.pk: letter_of(job) for job in rows}
    running = [step.agent_run_id for step in steps if step.status == StepStatus.RUNNING]
    partial = partial_replies.read([call_id for call_id in running if call_id])
    results: dict[UUID, dict[str, list[dict[str, Any]]]] = defaultdict(
        lambda: {letter: [] for letter in letters.values()}
    )
    for step in steps:
        text = partial.get(step.agent_run_id) if step.agent_run_id else None
        result = _result_json(step, runs.get(step.pk), _call_run(runs, step), text)
        results[step.example_id][letters[step.job_id]].append(result)
    return results


def _result_json(
    step: ExperimentStep, root: RunDetail | None, call: RunDetail | None, partial: str | None
) -> dict[str, Any]:
    message = None
    if call is not None:
        replies = convert_messages(parse_messages(call.value(Payload.OUTPUTS)))
        message = next((reply for reply in replies if reply.role == "ai"), None)
    row = None if call is None else call.row
    usage = None if row is None or row.usage.total_tokens is None else row.usage
    return {
        "run_id": step.pk,
        "trace_url": None
        if root is None
        else reverse("trace-redirect", args=[step.workspace_id, step.pk]),
        "status": step.status,
        "message": None if message is None else msgspec.to_builtins(message),
        "partial": partial,
        "error": None if root is None else root.value(Payload.ERROR),
        "latency_ms": None
        if row is None or row.end_time is None
        else round((row.end_time - row.start_time).total_seconds() * 1000),
        "usage": None
        if usage is None
        else {
            "input_tokens": usage.prompt_tokens or 0,
            "output_tokens": usage.completion_tokens or 0,
            "total_tokens": usage.total_tokens,
        },
        "cost": None if usage is None or usage.total_cost is None else float(usage.total_cost),
    }
