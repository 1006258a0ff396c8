"""Evaluator pages in Chromium: axe, both widths and themes."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from apps.datasets.models import ExampleRevision
from apps.evaluators.models import Evaluation, Evaluator, EvaluatorRule
from apps.tracing.services import create_project, ensure_project
from tests.browser.test_accessibility import VARIANTS, find_problems
from tests.factories.datasets import make_dataset
from tests.factories.evaluators import judge_setting
from tests.factories.tracing import ingest, wire_run


def create_rule(workspace, name, **fields):
    setting = judge_setting("Grade {{output}} against {{reference}}.", template_format="mustache")
    evaluator = Evaluator(
        workspace=workspace,
        name=name,
        setting=msgspec.to_builtins(setting),
        feedback_keys=["correctness"],
        is_part_of_rule=True,
    )
    evaluator.save()
    rule = EvaluatorRule(
        workspace=workspace,
        name=name,
        evaluator=evaluator,
        max_calls_per_day=100,
        weekly_limit_usd="2.5",
        filter='and(eq(name, "agent"), eq(status, "success"))',
        **fields,
    )
    rule.save()
    return rule


def create_function_rule(workspace, dataset):
    """A rule with a function, and a failed run with its traceback."""
    rule = create_rule(workspace, "Exact", dataset=dataset)
    rule.weekly_limit_usd = None
    rule.save()
    evaluator = rule.evaluator
    evaluator.type, evaluator.setting = "code", None
    evaluator.code = "def perform_eval(run, example):\n    return run['outputs']['answer']\n" * 3
    evaluator.save()
    frame = '  File "evaluator.py", line 2, in perform_eval\n    return run["outputs"]["answer"]\n'
    Evaluation(
        workspace=workspace,
        organization_id=workspace.organization_id,
        rule=rule,
        is_code=True,
        run_id=uuid4(),
        project_id=uuid4(),
        status="failed",
        error=f"Traceback (most recent call last):\n{frame * 3}KeyError: 'answer'",
    ).save()
    return rule


def create_log(rule, project):
    """Two scored runs, a failed and a waiting one."""
    score = {"key": "correctness", "score": 1.0, "comment": "It agrees with the reference. " * 5}
    states = ("succeeded", "succeeded", "failed", "pending")
    for number, status in enumerate(states):
        run = wire_run(session_name=project.name)
        ingest(rule.workspace, run)
        Evaluation(
            workspace=rule.workspace,
            organization_id=rule.workspace.organization_id,
            rule=rule,
            run_id=run["id"],
            project_id=project.pk,
            status=status,
            scores=[score] if status == "succeeded" else None,
            error="OpenAI responded with status 400: no such model." if number == 2 else "",
            cost=0.00006,
        ).save()


def evaluator_paths(session):
    """Yield the path of every evaluator page, with and without rows."""
    base, workspace = session.path, session.workspace
    project = ensure_project(workspace.pk, "default")
    dataset = make_dataset(workspace, {"question": "Why?"}, name="questions")
    lists = (
        f"{base}/datasets/{dataset.pk}/evaluators",
        f"{base}/projects/p/{project.pk}/evaluators",
    )
    yield from lists
    yield f"{base}/evaluators/new?dataset={dataset.pk}&template=correctness"
    yield f"{base}/evaluators/new?dataset={dataset.pk}&template=code"
    experiment = create_project(
        workspace_id=workspace.pk, name="try-1", reference_dataset_id=dataset.pk
    )
    example_id = str(ExampleRevision.unscoped.get(dataset=dataset).example_id)
    ingest(workspace, wire_run(session_name="try-1", reference_example_id=example_id))
    rule = create_rule(workspace, "Correctness of the answers", dataset=dataset)
    create_log(rule, experiment)
    create_rule(workspace, "Tone", project=project, is_enabled=False)
    function = create_function_rule(workspace, dataset)
    yield from lists
    for shown in (rule, function):
        yield from (f"{base}/evaluators/{shown.pk}", f"{base}/evaluators/{shown.pk}/edit")
    yield f"{base}/datasets/{dataset.pk}/experiments/compare?e={experiment.pk}"


@VARIANTS
def test_every_evaluator_page_passes_axe_and_fits_the_viewport(session, variants):
    assert find_problems(session.page, evaluator_paths(session), variants) == {}
