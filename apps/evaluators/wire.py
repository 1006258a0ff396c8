"""Bodies of the API of evaluators and rules, and the JSON of its responses.

Unknown fields are refused. Fields of the public clients for functions that there are not are
accepted as long as they are unset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from apps.core.errors import Invalid
from apps.evaluators.code.checks import PYTHON
from apps.evaluators.models import Evaluation, Evaluator, EvaluatorRule, RuleBackfill
from apps.evaluators.scoring import Score
from apps.playground.setting import TemplateFormat, convert, decode_json
from apps.trace_store import RunRow

T = TypeVar("T")
_UNSUPPORTED_LLM = frozenset({"num_few_shot_examples", "use_corrections_dataset"})
_UNSUPPORTED_CODE = frozenset(
    {
        *("advanced_features_enabled", "code_evaluator_input", "dependencies"),
        *("require_attachments", "workspace_secrets_keys"),
        *("managed_code_evaluator_key", "managed_code_evaluator_settings"),
    }
)
_UNSUPPORTED_RULE = frozenset(
    {
        *("group_by", "thread_filter", "transient", "create_alignment_queue"),
        "tracer_session_issue_id",
        *("webhooks", "alerts", "add_to_dataset_id"),
        *("add_to_dataset_prefer_correction", "extend_only", "use_corrections_dataset"),
        "extend_dataset_trace_retention",
        *("extend_evaluator_trace_retention", "extend_webhook_trace_retention"),
        *("corrections_dataset_id", "num_few_shot_examples", "include_extended_stats"),
        *("is_tracing_disabled", "alignment_annotation_queue_id"),
    }
)


class LlmEvaluatorBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A judge whose prompt is a commit; absent fields of a change stay."""

    prompt_repo_handle: str | msgspec.UnsetType | None = msgspec.UNSET
    commit_hash_or_tag: str | msgspec.UnsetType | None = msgspec.UNSET
    playground_settings_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    variable_mapping: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET


class CodeBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The source of a function `perform_eval(run, example)`; it has no other language."""

    code: str
    language: str = PYTHON


class CodeChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    code: str | msgspec.UnsetType = msgspec.UNSET
    language: str = PYTHON


class EvaluatorBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    type: str = "llm"
    llm_evaluator: LlmEvaluatorBody | None = None
    code_evaluator: CodeBody | None = None
    metadata: dict[str, Any] | None = None


class EvaluatorChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str | msgspec.UnsetType = msgspec.UNSET
    llm_evaluator: LlmEvaluatorBody | None = None
    code_evaluator: CodeChanges | None = None
    metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class StructuredBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A judge as a part of its rule: a commit, or messages with a schema and a model."""

    hub_ref: str | None = None
    prompt: list[tuple[str, str]] | None = None
    template_format: TemplateFormat = "f-string"
    schema: dict[str, Any] | None = None
    variable_mapping: dict[str, str] | None = None
    model: dict[str, Any] | None = None
    playground_settings_id: UUID | None = None


class RuleEvaluatorBody(msgspec.Struct, forbid_unknown_fields=True):
    structured: StructuredBody


class SpendLimitBody(msgspec.Struct, forbid_unknown_fields=True):
    limit_usd: float | str
    window: str = "weekly"


class RuleBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    display_name: str
    sampling_rate: float = 1.0
    session_id: UUID | None = None
    dataset_id: UUID | None = None
    is_enabled: bool = True
    filter: str | None = None
    trace_filter: str | None = None
    tree_filter: str | None = None
    evaluators: list[RuleEvaluatorBody] | None = None
    code_evaluators: list[CodeBody] | None = None
    evaluator_id: UUID | None = None
    evaluator_version: int | None = None
    spend_limit: SpendLimitBody | None = None
    max_calls_per_day: int | None = None
    backfill_from: datetime | None = None
    add_to_annotation_queue_id: UUID | None = None
    extend_annotation_queue_trace_retention: bool | None = None


class RuleTrialBody(RuleBody, forbid_unknown_fields=True, omit_defaults=True):
    """A rule with a judge, and values to try it on."""

    test_inputs: dict[str, Any] | None = None
    test_outputs: dict[str, Any] | None = None
    test_reference_outputs: dict[str, Any] | None = None


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The start times of the runs to evaluate; the end is now by default."""

    start_time: datetime
    end_time: datetime | None = None


class RuleChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a rule; absent fields stay, and its project or dataset cannot change."""

    display_name: str | msgspec.UnsetType = msgspec.UNSET
    sampling_rate: float | msgspec.UnsetType = msgspec.UNSET
    session_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    dataset_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    is_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    filter: str | msgspec.UnsetType | None = msgspec.UNSET
    trace_filter: str | msgspec.UnsetType | None = msgspec.UNSET
    tree_filter: str | msgspec.UnsetType | None = msgspec.UNSET
    evaluators: list[RuleEvaluatorBody] | msgspec.UnsetType | None = msgspec.UNSET
    code_evaluators: list[CodeBody] | msgspec.UnsetType | None = msgspec.UNSET
    evaluator_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    evaluator_version: int | msgspec.UnsetType | None = msgspec.UNSET
    spend_limit: SpendLimitBody | msgspec.UnsetType | None = msgspec.UNSET
    max_calls_per_day: int | msgspec.UnsetType | None = msgspec.UNSET
    backfill_from: datetime | msgspec.UnsetType | None = msgspec.UNSET
    add_to_annotation_queue_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    extend_annotation_queue_trace_retention: bool | msgspec.UnsetType | None = msgspec.UNSET


class EvaluateExperimentBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of the dataset to apply again; without `rule_ids`, those that are enabled."""

    rule_ids: list[UUID] | None = None
    only_failed: bool = False


class TriggerBody(msgspec.Struct, forbid_unknown_fields=True):
    rule_ids: list[UUID]


def decode_evaluator(body: bytes, kind: type[T]) -> T:
    """Raises `BadSetting` and `Invalid`."""
    fields = decode_json(body)
    if isinstance(fields, dict):
        for name, unsupported in (
            ("llm_evaluator", _UNSUPPORTED_LLM),
            ("code_evaluator", _UNSUPPORTED_CODE),
        ):
            if name in fields:
                fields[name] = _without_unsupported(fields[name], unsupported)
    return convert(fields, kind, Invalid)


def decode_rule(body: bytes, kind: type[T]) -> T:
    """Raises `BadSetting` and `Invalid`."""
    fields = _without_unsupported(decode_json(body), _UNSUPPORTED_RULE)
    if isinstance(fields, dict) and isinstance(functions := fields.get("code_evaluators"), list):
        fields["code_evaluators"] = [
            _without_unsupported(item, _UNSUPPORTED_CODE) for item in functions
        ]
    return convert(fields, kind, Invalid)


def _without_unsupported(fields: Any, names: Collection[str]) -> Any:
    if not isinstance(fields, dict):
        return fields
    for name in sorted(fields.keys() & names):
        if fields[name] not in (None, False, 0, [], {}, ""):
            raise Invalid(f"`{name}` is not supported.", [{"field": name}])
    return {name: value for name, value in fields.items() if name not in names}


def evaluator_json(evaluator: Evaluator) -> dict[str, Any]:
    """The evaluator with its rules, which the caller has prefetched."""
    return {
        "id": evaluator.pk,
        "tenant_id": evaluator.workspace_id,
        "name": evaluator.name,
        "type": evaluator.type,
        "created_by": None if evaluator.created_by is None else evaluator.created_by.display_name,
        "created_at": evaluator.created_at,
        "updated_at": evaluator.updated_at,
        "feedback_keys": evaluator.feedback_keys,
        "is_managed": False,
        "metadata": evaluator.metadata,
        "llm_evaluator": None if evaluator.is_code else _llm_json(evaluator),
        "code_evaluator": (
            {"evaluator_id": evaluator.pk, **_code_json(evaluator)} if evaluator.is_code else None
        ),
        "run_rules": [
            _scope_json(rule)
            | {"spend_limit": None if (limit := _limit_json(rule)) is None else _as_numbers(limit)}
            for rule in evaluator.rules.all()
        ],
    }


def _llm_json(evaluator: Evaluator) -> dict[str, Any]:
    return {
        "evaluator_id": evaluator.pk,
        "prompt_id": evaluator.prompt_id,
        "prompt_repo_handle": None if evaluator.prompt is None else evaluator.prompt.handle,
        "commit_hash_or_tag": evaluator.commit_name or None,
        "playground_settings_id": evaluator.saved_settings_id,
        "variable_mapping": evaluator.variable_mapping,
        "setting": evaluator.setting,
    }


def _code_json(evaluator: Evaluator) -> dict[str, Any]:
    return {
        "code": evaluator.code,
        "language": PYTHON,
        "require_attachments": False,
        "advanced_features_enabled": False,
        "code_evaluator_input": None,
    }


def _scope_json(rule: EvaluatorRule) -> dict[str, Any]:
    return {
        "id": rule.pk,
        "dataset_id": rule.dataset_id,
        "dataset_name": None if rule.dataset is None else rule.dataset.name,
        "session_id": rule.project_id,
        "session_name": None if rule.project is None else rule.project.name,
        "spend_limit": _limit_json(rule),
    }


def _as_numbers(limit: dict[str, Any]) -> dict[str, Any]:
    """Rules have a limit as text, evaluators as a number."""
    return limit | {"limit_usd": float(limit["limit_usd"])}


def _limit_json(rule: EvaluatorRule) -> dict[str, Any] | None:
    if rule.weekly_limit_usd is None:
        return None
    return {"limit_usd": str(rule.weekly_limit_usd), "window": "weekly"}


def rule_json(rule: EvaluatorRule) -> dict[str, Any]:
    """The rule with its evaluator, project and dataset; its spend is added by the caller."""
    evaluator, queue = rule.evaluator, rule.annotation_queue
    judges = functions = None
    if evaluator is not None and evaluator.is_code:
        functions = [_code_json(evaluator)]
    elif evaluator is not None:
        judges = [{"structured": _structured_json(evaluator)}]
    return {
        **_scope_json(rule),
        "tenant_id": rule.workspace_id,
        "display_name": rule.name,
        "sampling_rate": rule.sampling_rate,
        "is_enabled": rule.is_enabled,
        "filter": rule.filter or None,
        "trace_filter": rule.trace_filter or None,
        "tree_filter": rule.tree_filter or None,
        "group_by": None,
        "evaluator_id": rule.evaluator_id,
        "evaluator_name": None if evaluator is None else evaluator.name,
        "evaluator_type": None if evaluator is None else evaluator.type,
        "evaluator_version": 1,
        "evaluators": judges,
        "code_evaluators": functions,
        "add_to_annotation_queue_id": rule.annotation_queue_id,
        "add_to_annotation_queue_name": None if queue is None else queue.name,
        "extend_annotation_queue_trace_retention": rule.extends_queue_retention,
        "effective_spend_limit": _limit_json(rule),
        "max_calls_per_day": rule.max_calls_per_day,
        "created_at": rule.created_at,
        "updated_at": rule.updated_at,
    }


def _structured_json(evaluator: Evaluator) -> dict[str, Any]:
    fields = {
        "variable_mapping": evaluator.variable_mapping,
        "playground_settings_id": evaluator.saved_settings_id,
        "model": evaluator.model,
    }
    setting = evaluator.setting
    if setting is None:
        handle = None if evaluator.prompt is None else evaluator.prompt.handle
        return fields | {"hub_ref": None if handle is None else f"{handle}:{evaluator.commit_name}"}
    return fields | {
        "prompt": [[item["role"], item.get("content", "")] for item in setting["messages"]],
        "template_format": setting.get("template_format", "f-string"),
        "schema": setting.get("response_schema"),
        "model": evaluator.model or setting["model"],
    }


def log_json(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation of one run as an entry of the rule's log."""
    return {
        "id": evaluation.pk,
        "rule_id": evaluation.rule_id,
        "run_id": evaluation.run_id,
        "session_id": evaluation.project_id,
        "reference_example_id": evaluation.example_id,
        "status": evaluation.status,
        "attempts": evaluation.attempt - evaluation.earlier_attempts,
        "evaluator_run_id": evaluation.judge_run_id,
        "feedback": evaluation.scores,
        "added_to_annotation_queue_at": evaluation.queued_at,
        "error": evaluation.error or None,
        "cost": evaluation.cost,
        "created_at": evaluation.created_at,
        "start_time": evaluation.started_at,
        "end_time": evaluation.ended_at,
        "next_attempt_at": evaluation.due_at.astimezone(UTC) if _is_open(evaluation) else None,
    }


def _is_open(evaluation: Evaluation) -> bool:
    return evaluation.status in {"pending", "running"}


def last_applied_json(rule: EvaluatorRule, at: datetime | None) -> dict[str, Any]:
    return {"rule_id": rule.pk, "last_applied_at": at}


def backfill_json(backfill: RuleBackfill | None, *, with_progress: bool) -> dict[str, Any]:
    """The last backfill of a rule as fields of the rule."""
    return {
        "backfill_id": None if backfill is None else backfill.pk,
        "backfill_from": None if backfill is None else backfill.started_from,
        "backfill_status": None if backfill is None else backfill.status,
        "backfill_error": None if backfill is None else backfill.error or None,
        "backfill_completed_at": None if backfill is None else backfill.ended_at,
        "backfill_progress": (
            backfill.progress if backfill is not None and with_progress else None
        ),
    }


def backfill_detail_json(backfill: RuleBackfill, waiting_count: int) -> dict[str, Any]:
    return {
        "id": backfill.pk,
        "rule_id": backfill.rule_id,
        "start_time": backfill.started_from,
        "end_time": backfill.started_until,
        "status": backfill.status,
        "progress": backfill.progress,
        "run_count": backfill.run_count,
        "waiting_count": waiting_count,
        "error": backfill.error or None,
        "created_at": backfill.created_at,
        "completed_at": backfill.ended_at,
    }


_UNSET_FLAGS = (
    *("add_to_dataset_prefer_correction", "extend_only", "include_extended_stats"),
    *("is_managed_evaluator", "is_tracing_disabled", "transient", "use_corrections_dataset"),
)
"""Flags of rules that v2 always has, and no rule can set."""


def rule_v2_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The rule of v1 with the names and the upper-case constants of v2."""
    renamed = {"session_id": "project_id", "session_name": "project_name"}
    result = {renamed.get(name, name): value for name, value in fields.items()}
    for name in ("spend_limit", "effective_spend_limit"):
        if result[name] is not None:
            result[name] = result[name] | {"window": result[name]["window"].upper()}
    if result["code_evaluators"] is not None:
        result["code_evaluators"] = [
            function | {"language": function["language"].upper()}
            for function in result["code_evaluators"]
        ]
    return result | dict.fromkeys(_UNSET_FLAGS, False)


_OUTCOMES = {"succeeded": "success", "failed": "error", "skipped": "skipped"}


def applied_json(rule: EvaluatorRule, evaluation: Evaluation, run: RunRow | None) -> dict[str, Any]:
    """What the rule did with a run; without the run's name if it was removed meanwhile."""
    outcome, error = _OUTCOMES[evaluation.status], evaluation.error or None
    scored = {"outcome": outcome, "payload": {"feedback": evaluation.scores, "error": error}}
    queued = None
    if evaluation.queued_at is not None:
        queued = {"outcome": "success", "payload": {"error": None}}
    elif rule.annotation_queue_id is not None and evaluation.status != "succeeded":
        queued = {"outcome": outcome, "payload": {"error": error}}
    return {
        "rule_id": evaluation.rule_id,
        "run_id": evaluation.run_id,
        "start_time": evaluation.started_at or evaluation.created_at,
        "end_time": evaluation.ended_at,
        "run_name": None if run is None else run.name,
        "run_type": None if run is None else run.run_type,
        "run_session_id": evaluation.project_id,
        "thread_id": None if run is None else run.thread_key,
        "application_time": evaluation.ended_at,
        "evaluators": None if rule.evaluator_id is None else scored,
        "add_to_annotation_queue": queued,
        **dict.fromkeys(("add_to_dataset", "alerts", "webhooks", "extend_only")),
    }


def rule_trial_json(
    values: Mapping[str, Any], scores: Sequence[Score], judge_run_id: UUID
) -> dict[str, Any]:
    """The result of a judge that was tried: the values of its variables, and its scores."""
    return {
        "inputs": values,
        "outputs": {
            score.key: score.score if score.value is None else score.value for score in scores
        },
        "feedback": [msgspec.to_builtins(score) for score in scores],
        "evaluator_run_id": judge_run_id,
    }
