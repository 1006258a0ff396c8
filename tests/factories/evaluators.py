from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from apps.datasets.models import Dataset
from apps.evaluators.models import (
    CodeTrial,
    Evaluation,
    Evaluator,
    EvaluatorRule,
    EvaluatorSpend,
    RuleBackfill,
)
from apps.organizations.models import Workspace
from apps.playground.manifests import build_manifest
from apps.playground.setting import Setting, convert
from apps.prompts.models import Commit, Repository
from apps.prompts.services.commits import create_prompt_commit
from tests.factories.prompts import create_prompt

SCHEMA = {
    "type": "object",
    "title": "grade",
    "properties": {
        "correctness": {"type": "boolean", "description": "Whether the answer is right."},
        "comment": {"type": "string"},
    },
    "required": ["correctness", "comment"],
}


def judge_setting(text: str = "Grade {output} against {reference}.", **fields: Any) -> Setting:
    """The setting of a judge; `schema` and `model` replace those of correctness."""
    return convert(
        {
            "messages": [{"role": "human", "content": text}],
            "model": {"provider": "openai", "model": "gpt-4.1-mini"} | fields.pop("model", {}),
            "response_schema": fields.pop("schema", SCHEMA),
            **fields,
        },
        Setting,
    )


def create_judge_prompt(
    workspace: Workspace, handle: str = "grader", **fields: Any
) -> tuple[Repository, Commit]:
    """A prompt with one commit, which is a judge."""
    repository = create_prompt(workspace, handle)
    return repository, commit_judge(repository, **fields)


def commit_judge(repository: Repository, **fields: Any) -> Commit:
    return create_prompt_commit(
        repository=repository,
        content=build_manifest(judge_setting(**fields)),
        parent=None if repository.head is None else repository.head.commit_hash,
        description="",
        created_by_id=None,
    )


def structured(text: str = "Grade {output} against {reference}.", **fields: Any) -> dict[str, Any]:
    """The judge of a rule as JSON."""
    return {
        "prompt": [["system", "You grade answers."], ["human", text]],
        "template_format": "f-string",
        "schema": SCHEMA,
        "model": {"provider": "openai", "model": "gpt-4.1-mini"},
        **fields,
    }


def create_evaluator_rows(workspace: Workspace, mark: str, dataset_id: UUID) -> dict[str, UUID]:
    """Create a row of each table of evaluators, each marked with the name.

    Returns a value for each route parameter.
    """
    evaluator = Evaluator(
        workspace=workspace, name=mark, setting={"messages": [], "model": {"model": mark}}
    )
    evaluator.save()
    rule = EvaluatorRule(
        workspace=workspace,
        name=mark,
        evaluator=evaluator,
        dataset=Dataset.unscoped.get(pk=dataset_id),
        is_enabled=False,
        max_calls_per_day=1,
        filter=f'eq(name, "{mark}")',
    )
    rule.save()
    Evaluation(
        workspace=workspace,
        organization_id=workspace.organization_id,
        rule=rule,
        run_id=uuid4(),
        project_id=uuid4(),
        status="failed",
        error=mark,
        ended_at=timezone.now(),
    ).save()
    EvaluatorSpend(workspace=workspace, rule=rule, day=timezone.now().date(), call_count=1).save()
    RuleBackfill(
        workspace=workspace,
        rule=rule,
        started_from=timezone.now(),
        started_until=timezone.now(),
        status="failed",
        error=mark,
    ).save()
    CodeTrial(
        workspace=workspace,
        organization_id=workspace.organization_id,
        name=mark,
        code=f"def perform_eval(run): return {mark!r}",
        started_at=timezone.now(),
    ).save()
    return {"evaluator_id": evaluator.pk, "evaluator_rule_id": rule.pk, "experiment_id": uuid4()}
