"""Pages of evaluators: lists of a dataset and a project, the form with its trial, and the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.errors import AppError
from apps.core.http.loop_response import LoopResponse
from apps.core.sync_bridge import in_thread
from apps.datasets.models import Dataset
from apps.datasets.pages.base import dataset_context
from apps.datasets.services.datasets import get_dataset
from apps.evaluators import pages
from apps.evaluators.code_form import CodeRuleForm
from apps.evaluators.forms import EvaluatorRuleForm
from apps.evaluators.judge_templates import TEMPLATES
from apps.evaluators.models import CodeTrial, Evaluation, EvaluationStatus, EvaluatorRule
from apps.evaluators.queue_form import QueueRuleForm
from apps.evaluators.services import backfills, code_trials, reruns, rules, trials
from apps.evaluators.services.rules import CREATE_PERMISSIONS
from apps.evaluators.services.trials import PreparedTrial
from apps.evaluators.wire import RuleChanges
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page

PAGE_SIZE = 50
CODE, QUEUE = "code", "queue"
"""The tabs of functions and of rules without an evaluator, next to the judges' templates."""
AnyRuleForm = CodeRuleForm | EvaluatorRuleForm | QueueRuleForm
Scope = tuple[Dataset | None, Project | None]


@require_GET
@workspace_page(Permission.EVALUATORS_READ)
def dataset_evaluators(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """List the rules of a dataset."""
    request.caller.require(Permission.DATASETS_READ)
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    rows = rules.rules_of(dataset.workspace_id).filter(dataset=dataset)
    context = dataset_context(request, dataset, "evaluators") | _list_context(request, rows)
    return render(request, "evaluators/dataset_evaluators.html", context)


@require_GET
@workspace_page(Permission.EVALUATORS_READ)
def project_evaluators(request: PageRequest, project_id: UUID) -> HttpResponse:
    """List the rules of a project."""
    project = get_project(request.caller.workspace_id, project_id)
    rows = rules.rules_of(project.workspace_id).filter(project=project)
    context = {"project": project, "tab": "evaluators", **_list_context(request, rows)}
    return render(request, "evaluators/project_evaluators.html", context)


def _list_context(request: PageRequest, rows: Any) -> dict[str, Any]:
    return {
        "rows": pages.load_rows(list(rows.newest_first())),
        "may_edit": _may_edit(request),
        "templates": TEMPLATES.items(),
    }


def _may_edit(request: PageRequest) -> bool:
    return all(map(request.caller.may, (Permission.EVALUATORS_WRITE, *CREATE_PERMISSIONS)))


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EVALUATORS_WRITE)
def evaluator_new(request: PageRequest) -> HttpResponse:
    """Show the form for the dataset or project of the query, and create a rule."""
    dataset, project = _read_scope(request)
    chosen = request.GET.get("template", "")
    workspace_id, data = request.caller.workspace_id, request.POST or None
    form: AnyRuleForm
    if chosen == CODE:
        form = CodeRuleForm(workspace_id, data)
    elif chosen == QUEUE:
        form = QueueRuleForm(workspace_id, data)
    else:
        form = EvaluatorRuleForm(workspace_id, data, template=TEMPLATES.get(chosen))
    saved: list[EvaluatorRule] = []

    def save() -> None:
        body = form.body(
            dataset_id=None if dataset is None else dataset.pk,
            project_id=None if project is None else project.pk,
        )
        saved.append(rules.create_rule(caller=request.caller, body=body))

    if save_form(form, save):
        messages.success(request, f"{saved[0].name} was created.")
        return redirect("evaluator-rule-detail", saved[0].workspace_id, saved[0].pk)
    context = {
        "form": form,
        **_scope_context(request, (dataset, project)),
        "templates": TEMPLATES.items(),
        "chosen": chosen if chosen in TEMPLATES else "",
        "trial_url": _trial_url(request, (dataset, project)),
    }
    return form_page(request, "evaluators/evaluator_form.html", context, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EVALUATORS_WRITE)
def evaluator_edit(request: PageRequest, evaluator_rule_id: UUID) -> HttpResponse:
    rule = _find(request, evaluator_rule_id)
    _require_rights(request)
    name = rule.name
    kind: type[AnyRuleForm] = EvaluatorRuleForm
    if rule.evaluator is None:
        kind = QueueRuleForm
    elif rule.is_code:
        kind = CodeRuleForm
    form = kind(rule.workspace_id, request.POST or None, rule=rule)
    scope = (rule.dataset, rule.project)

    def save() -> None:
        rules.update_rule(caller=request.caller, rule=rule, changes=form.changes())

    if save_form(form, save):
        messages.success(request, f"{form.cleaned_data['name']} was saved.")
        return redirect("evaluator-rule-detail", rule.workspace_id, rule.pk)
    context = {
        "form": form,
        "rule": rule,
        "name": name,
        **_scope_context(request, scope),
        "trial_url": _trial_url(request, scope),
    }
    return form_page(request, "evaluators/evaluator_form.html", context, form)


def _read_scope(request: PageRequest) -> Scope:
    """The dataset or the project of the query. Raises `NotFound`."""
    _require_rights(request)
    workspace_id = request.caller.workspace_id
    project_id = _parse_id(request.GET.get("project", ""))
    if project_id is not None:
        return None, get_project(workspace_id, project_id)
    request.caller.require(Permission.DATASETS_READ)
    return get_dataset(workspace_id, _parse_id(request.GET.get("dataset", "")) or UUID(int=0)), None


def _require_rights(request: PageRequest) -> None:
    for permission in CREATE_PERMISSIONS:
        request.caller.require(permission)


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _scope_context(request: PageRequest, scope: Scope) -> dict[str, Any]:
    dataset, project = scope
    workspace_id = request.caller.workspace_id
    if dataset is not None:
        list_url = reverse("dataset-evaluators", args=[workspace_id, dataset.pk])
        return {
            "scope_name": dataset.name,
            "list_url": list_url,
            "query": f"dataset={dataset.pk}",
            "section_name": "Datasets",
            "section_url": reverse("dataset-list", args=[workspace_id]),
        }
    assert project is not None  # noqa: S101
    list_url = reverse("project-evaluators", args=[workspace_id, project.pk])
    return {
        "scope_name": project.name,
        "list_url": list_url,
        "query": f"project={project.pk}",
        "section_name": "Projects",
        "section_url": reverse("project-list", args=[workspace_id]),
    }


def _trial_url(request: PageRequest, scope: Scope) -> str:
    url = reverse("evaluator-try", args=[request.caller.workspace_id])
    return f"{url}?{_scope_context(request, scope)['query']}"


@require_POST
@workspace_page(Permission.EVALUATORS_WRITE)
def evaluator_try(request: PageRequest) -> HttpResponseBase:
    """Try the judge or the function of the form on one run; the response is a part of its page."""
    scope = _read_scope(request)
    form: CodeRuleForm | EvaluatorRuleForm
    if "code" in request.POST:
        form = CodeRuleForm(request.caller.workspace_id, request.POST)
    else:
        request.caller.require(Permission.PROMPTS_WRITE)
        form = EvaluatorRuleForm(request.caller.workspace_id, request.POST)
    if not form.is_valid():
        problem = next(iter(form.errors.values()))[0]
        return render(request, "evaluators/trial.html", {"problem": problem})
    text = request.POST.get("run", "").strip()
    run_id = _parse_id(text)
    if text and run_id is None:
        return render(request, "evaluators/trial.html", {"problem": "The run's id is not an id."})
    try:
        return LoopResponse(_start_trial(request, form, scope, run_id))
    except AppError as error:
        return render(request, "evaluators/trial.html", {"problem": error.detail})


def _start_trial(
    request: PageRequest, form: CodeRuleForm | EvaluatorRuleForm, scope: Scope, run_id: UUID | None
) -> AsyncGenerator[bytes, None]:
    """Return the pieces of the response. Raises the errors of `trials` and `code_trials`."""
    dataset, project = scope
    options: dict[str, Any] = {
        "caller": request.caller,
        "name": form.cleaned_data["name"],
        "dataset": dataset,
        "project": project,
        "run_id": run_id,
    }
    if isinstance(form, CodeRuleForm):
        code = form.cleaned_data["code"]
        return _show_code_trial(*code_trials.create_trial(code=code, **options))
    return _show_trial(trials.prepare_trial(body=form.judge(), **options))


async def _show_trial(trial: PreparedTrial) -> AsyncGenerator[bytes, None]:
    context: dict[str, Any] = {
        "subject_name": trial.subject_name,
        "messages": trial.messages,
        "trace_url": trial.column.trace_url,
    }
    try:
        context["scores"] = (await trials.make_trial(trial)).scores
    except AppError as error:
        context["problem"] = error.detail
    content = await in_thread(render_to_string, "evaluators/trial.html", context)
    yield content.encode()


async def _show_code_trial(trial: CodeTrial, subject_name: str) -> AsyncGenerator[bytes, None]:
    context: dict[str, Any] = {"is_code": True, "subject_name": subject_name}
    try:
        ended = await code_trials.wait_for(trial)
        context |= {"scores": ended.scores, "output": ended.output}
        context["traceback" if "\n" in ended.error else "problem"] = ended.error
    except AppError as error:
        context["problem"] = error.detail
    content = await in_thread(render_to_string, "evaluators/trial.html", context)
    yield content.encode()


@never_cache
@require_GET
@workspace_page(Permission.EVALUATORS_READ)
def evaluator_detail(request: PageRequest, evaluator_rule_id: UUID) -> HttpResponse:
    """Show a rule with its log."""
    rule = _find(request, evaluator_rule_id)
    status = request.GET.get("status", "")
    evaluations = Evaluation.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    if status in EvaluationStatus.values:
        evaluations = evaluations.filter(status=status)
    offset = read_offset(request)
    shown = list(evaluations.newest_first()[offset : offset + PAGE_SIZE + 1])
    backfill = backfills.find_last([rule]).get(rule.pk)
    scope = (rule.dataset, rule.project)
    context = {
        "rule": rule,
        "row": pages.load_rows([rule])[0],
        "logs": [pages.LogRow(row) for row in shown[:PAGE_SIZE]],
        "next_offset": offset + PAGE_SIZE if len(shown) > PAGE_SIZE else None,
        "status": status,
        "statuses": EvaluationStatus.choices,
        "may_edit": _may_edit(request),
        "backfill": backfill,
        "backfill_waiting": 0 if backfill is None else backfills.count_waiting(backfill),
        "backfill_badge": None if backfill is None else pages.BACKFILL_BADGES[backfill.status],
        **_scope_context(request, scope),
    }
    return render(request, "evaluators/evaluator_detail.html", context)


@require_POST
@workspace_page(Permission.EVALUATORS_WRITE)
def evaluator_change(request: PageRequest, evaluator_rule_id: UUID) -> HttpResponse:
    """Enable, disable, trigger or delete the rule, or score runs again, as `action` requests."""
    rule = _find(request, evaluator_rule_id)
    _require_rights(request)
    action = request.POST.get("action")
    if action == "delete":
        list_url = _scope_context(request, (rule.dataset, rule.project))["list_url"]
        rules.delete_rule(rule=rule)
        messages.success(request, f"{rule.name} was deleted.")
        return redirect(list_url)
    if action in {"enable", "disable"}:
        changes = RuleChanges(is_enabled=action == "enable")
        rules.update_rule(caller=request.caller, rule=rule, changes=changes)
    elif action == "trigger":
        rules.trigger_rules(rules=[rule])
        messages.success(request, "The rule is applied now to the runs that waited.")
    elif action == "backfill":
        _start_backfill(request, rule)
    elif action == "cancel-backfill":
        backfills.cancel(rule=rule)
        messages.success(request, "The rule is no longer applied to earlier runs.")
    elif action == "retry":
        count = reruns.retry_failed(rule=rule)
        messages.success(request, f"{count:,} evaluation{'s' * (count != 1)} will be repeated.")
    return redirect("evaluator-rule-detail", rule.workspace_id, rule.pk)


def _start_backfill(request: PageRequest, rule: EvaluatorRule) -> None:
    """Apply the rule to runs since the day of the form, which begins in the user's time zone."""
    try:
        day = date.fromisoformat(request.POST.get("from", ""))
        first = timezone.make_aware(datetime.combine(day, time.min))
        backfills.start(caller=request.caller, rule=rule, started_from=first)
    except ValueError:
        messages.error(request, "Enter the first day of the earlier runs.")
    except AppError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, "The rule is applied to earlier runs, the newest first.")


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EVALUATORS_READ)
def experiment_evaluations(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Show which rules score the experiments `e`; a POST repeats what failed."""
    request.caller.require(Permission.EXPERIMENTS_READ)
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    ids = [item for text in request.GET.getlist("e") if (item := _parse_id(text)) is not None]
    projects = Project.objects.for_workspace(dataset.workspace_id).present()
    experiments = list(projects.filter(pk__in=ids[:20], reference_dataset_id=dataset.pk))
    if request.method == "POST":
        request.caller.require(Permission.EVALUATORS_WRITE)
        _require_rights(request)
        for experiment in experiments:
            reruns.evaluate_experiment(
                workspace_id=dataset.workspace_id,
                experiment_id=experiment.pk,
                only_failed=True,
                with_disabled=True,
            )
        if not request.htmx:
            query = urlencode({"e": [str(row.pk) for row in experiments]}, doseq=True)
            url = reverse("dataset-experiments-compare", args=[dataset.workspace_id, dataset.pk])
            return redirect(f"{url}?{query}")
    progress = reruns.count_by_rule(dataset.workspace_id, [row.pk for row in experiments])
    context = {
        "dataset": dataset,
        "failed": [row for row in progress if row.failed_count],
        "open_count": sum(row.open_count for row in progress),
        "total_count": sum(row.open_count + row.finished_count for row in progress),
        "url": request.get_full_path(),
        "may_edit": _may_edit(request),
    }
    return render(request, "evaluators/experiment_evaluations.html", context)


def _find(request: PageRequest, rule_id: UUID) -> EvaluatorRule:
    return rules.get_rule(request.caller.workspace_id, rule_id)
