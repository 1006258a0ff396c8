"""Tools of evaluators: what scores runs, how it went, and scoring an experiment again."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import PlatformApi, ToolError, find_dataset, find_project
from apps.platform_mcp.registry import Arguments, Flag, JSONObject, Texts, ToolGroup

MAX_RULES = 100
MAX_LOGS = 100
_FIELDS = (
    *("display_name", "evaluator_id", "evaluator_type", "is_enabled", "sampling_rate", "filter"),
    *("dataset_id", "dataset_name", "session_id", "session_name", "trace_count", "spend_usd"),
)
_LOG_FIELDS = ("run_id", "status", "feedback", "error", "cost", "end_time")

tools = ToolGroup()


class ListEvaluators(Arguments):
    dataset_id: UUID | None = None
    dataset_name: str | None = None
    project_name: str | None = Field(None, description="A project whose traces are scored.")
    name_contains: str | None = None


@tools.declare("List evaluators", Permission.EVALUATORS_READ)
def list_evaluators(api: PlatformApi, arguments: ListEvaluators) -> JSONObject:
    """List the rules that score experiments on a dataset, or the traces of a project."""
    dataset_id = project_id = None
    if arguments.dataset_id or arguments.dataset_name:
        dataset_id = find_dataset(api, arguments.dataset_id, arguments.dataset_name)
    if arguments.project_name:
        project_id = find_project(api, arguments.project_name)
    rows = api.get(
        "/runs/rules",
        dataset_id=dataset_id,
        session_id=project_id,
        name_contains=arguments.name_contains,
    )
    shown = [{"rule_id": row["id"], **{name: row[name] for name in _FIELDS}} for row in rows]
    return {"evaluators": shown[:MAX_RULES], "total_count": len(rows)}


class GetEvaluatorLogs(Arguments):
    rule_id: UUID
    status: str | None = Field(
        None, description="pending, running, succeeded, failed or skipped; all by default."
    )
    run_id: UUID | None = None
    limit: int = Field(20, ge=1, le=MAX_LOGS)


@tools.declare("Log of an evaluator", Permission.EVALUATORS_READ)
def get_evaluator_logs(api: PlatformApi, arguments: GetEvaluatorLogs) -> JSONObject:
    """Read what a rule scored, newest first, with its scores, or the error or traceback."""
    rows = api.get(
        f"/runs/rules/{arguments.rule_id}/logs",
        status=arguments.status,
        run_id=arguments.run_id,
        limit=arguments.limit,
    )
    return {"logs": [{name: row[name] for name in _LOG_FIELDS} for row in rows]}


class EvaluateExperiment(Arguments):
    experiment_id: UUID | None = None
    experiment_name: str | None = None
    rule_ids: Texts | None = Field(
        None, description="Rules of the dataset; the enabled ones by default."
    )
    only_failed: Flag = Field(False, description="Repeat only what failed.")


@tools.declare(
    "Score an experiment",
    Permission.EVALUATORS_WRITE,
    Permission.RUNS_READ,
    Permission.FEEDBACK_WRITE,
    changes=True,
)
def evaluate_experiment(api: PlatformApi, arguments: EvaluateExperiment) -> JSONObject:
    """Apply evaluators of the dataset to the rows of an experiment, again if they did.

    The scores are in list_experiments and get_evaluator_logs once they are there.
    """
    experiment_id = arguments.experiment_id
    if experiment_id is None:
        if arguments.experiment_name is None:
            raise ToolError("Name the experiment, by id or by name.")
        experiment_id = find_project(api, arguments.experiment_name)
    body = {"rule_ids": arguments.rule_ids, "only_failed": arguments.only_failed}
    result: JSONObject = api.post(f"/runs/experiments/{experiment_id}/evaluate", body)
    return result
