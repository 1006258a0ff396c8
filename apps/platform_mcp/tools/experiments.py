"""Tools that run experiments and read their results."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import PlatformApi, ToolError, find_dataset, find_deployment
from apps.platform_mcp.registry import Arguments, JSONObject, Object, Texts, ToolGroup
from apps.platform_mcp.tools.datasets import DatasetArguments

_COSTS = ("total_cost", "prompt_cost", "completion_cost")
_COUNTS = ("run_count", "error_rate", "total_tokens")

tools = ToolGroup()


class ListExperiments(Arguments):
    reference_dataset_id: UUID | None = None
    reference_dataset_name: str | None = None
    limit: int = Field(5, ge=1, le=100)
    project_name: str | None = Field(None, description="A part of the experiment's name.")


@tools.declare("List experiments", Permission.PROJECTS_READ, Permission.DATASETS_READ)
def list_experiments(api: PlatformApi, arguments: ListExperiments) -> JSONObject:
    """List the experiments on a dataset with scores, latency and cost, newest first."""
    if arguments.reference_dataset_id and arguments.reference_dataset_name:
        raise ToolError("Give either reference_dataset_id or reference_dataset_name.")
    projects = api.get(
        "/sessions",
        reference_dataset=find_dataset(
            api, arguments.reference_dataset_id, arguments.reference_dataset_name
        ),
        name_contains=arguments.project_name,
        limit=arguments.limit,
        include_stats=True,
    )
    return {"experiments": [_experiment(row) for row in projects]}


def _experiment(row: JSONObject) -> JSONObject:
    seconds = {
        f"{name}_seconds": row[name] for name in ("latency_p50", "latency_p99") if row.get(name)
    }
    costs = {name: float(row[name]) for name in _COSTS if row.get(name) is not None}
    counts = {name: row[name] for name in _COUNTS if row.get(name) is not None}
    return {
        "name": row["name"],
        "experiment_id": row["id"],
        "feedback_stats": row.get("feedback_stats"),
        **seconds,
        **costs,
        **counts,
    }


class RunExperiment(DatasetArguments):
    deployment: str = Field(min_length=1, description="Name or id of the deployed agent.")
    assistant_id: str | None = Field(None, description="An assistant or graph of the agent.")
    experiment_prefix: str | None = None
    description: str | None = None
    metadata: Object | None = None
    as_of: str | None = Field(None, description="A version of the dataset: a tag, or a time.")
    splits: Texts | None = None
    input_mapping: Object | None = Field(
        None, description="The agent's input, with {{path}} for fields of the example."
    )
    repetitions: int | None = Field(None, ge=1)
    concurrency: int | None = Field(None, ge=1)


@tools.declare(
    "Run an experiment",
    Permission.EXPERIMENTS_WRITE,
    Permission.AGENTS_RUN,
    Permission.DATASETS_READ,
    Permission.DEPLOYMENTS_READ,
    Permission.PROJECTS_WRITE,
    changes=True,
)
def run_experiment(api: PlatformApi, arguments: RunExperiment) -> JSONObject:
    """Run a deployed agent on each example of a dataset. Follow it with get_experiment_job."""
    dataset_id = find_dataset(api, arguments.dataset_id, arguments.dataset_name)
    options = arguments.model_dump(
        exclude={"dataset_id", "dataset_name", "deployment"}, exclude_none=True
    )
    body = {**options, "deployment_id": find_deployment(api, arguments.deployment)}
    job: JSONObject = api.post(f"/datasets/{dataset_id}/experiment-jobs", body)
    return job


class GetExperimentJob(Arguments):
    job_id: UUID


@tools.declare("Progress of an experiment", Permission.EXPERIMENTS_READ)
def get_experiment_job(api: PlatformApi, arguments: GetExperimentJob) -> JSONObject:
    """Read the status of an experiment that the platform runs, with its counts."""
    job: JSONObject = api.get(f"/experiment-jobs/{arguments.job_id}")
    return job
