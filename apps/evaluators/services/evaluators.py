"""Creates, changes and deletes evaluators."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.callers import Caller
from apps.core.errors import AppError
from apps.evaluators import errors
from apps.evaluators.code.checks import check_code, check_language
from apps.evaluators.errors import BadEvaluator
from apps.evaluators.judge import resolve
from apps.evaluators.models import Evaluator, EvaluatorRule, EvaluatorType
from apps.evaluators.querysets import EvaluatorQuerySet
from apps.evaluators.wire import (
    CodeBody,
    CodeChanges,
    EvaluatorBody,
    EvaluatorChanges,
    LlmEvaluatorBody,
    StructuredBody,
)
from apps.organizations.models import Workspace
from apps.organizations.permissions import Permission
from apps.playground.manifests import read_model
from apps.playground.services import saved_settings
from apps.playground.setting import MAX_STATE_BYTES, Setting, convert, message_of
from apps.prompts.services.lookup import OWN, find_repository, is_own_name
from apps.providers.chat import ModelSettings

MAX_EVALUATORS = 500
"""Evaluators of a workspace."""
MAX_NAME_LENGTH = 200
MAX_METADATA_BYTES = 16_384
LATEST = "latest"


def evaluators_of(workspace_id: UUID) -> EvaluatorQuerySet:
    """The evaluators with what their JSON needs."""
    rows = Evaluator.objects.for_workspace(workspace_id)
    rows = rows.select_related("prompt", "saved_settings", "created_by")
    return rows.prefetch_related("rules__dataset", "rules__project")


def get_evaluator(workspace_id: UUID, evaluator_id: UUID) -> Evaluator:
    """Raises `EvaluatorNotFound`."""
    evaluator = evaluators_of(workspace_id).filter(pk=evaluator_id).first()
    if evaluator is None:
        raise errors.EvaluatorNotFound
    return evaluator


@transaction.atomic
def create_evaluator(*, caller: Caller, body: EvaluatorBody) -> Evaluator:
    """Create a judge whose prompt is a commit, or a function.

    Raises `BadEvaluator`, `TooManyEvaluators`, `RepositoryNotFound`, `CommitNotFound`.
    """
    if body.type not in EvaluatorType.values:
        raise BadEvaluator(f"Evaluators of the type `{body.type:.50}` are not supported.")
    evaluator = new_evaluator(caller, body.name)
    evaluator.metadata = body.metadata or {}
    evaluator.type = EvaluatorType(body.type)
    if evaluator.is_code:
        _refuse(evaluator, body.llm_evaluator)
        if body.code_evaluator is None:
            raise BadEvaluator("`code_evaluator` is missing.")
        apply_code(evaluator, body.code_evaluator)
    else:
        _refuse(evaluator, body.code_evaluator)
        if body.llm_evaluator is None:
            raise BadEvaluator("`llm_evaluator` is missing.")
        _apply(caller, evaluator, body.llm_evaluator)
        if evaluator.prompt is None:
            raise BadEvaluator("`llm_evaluator.prompt_repo_handle` is missing.")
    save_new(evaluator)
    return evaluator


def _refuse(evaluator: Evaluator, body: object) -> None:
    """Refuse the fields of the other type."""
    if body is not None:
        name = "llm_evaluator" if evaluator.is_code else "code_evaluator"
        raise BadEvaluator(f"`{name}`: the evaluator has the type `{evaluator.type}`.")


def new_evaluator(caller: Caller, name: str) -> Evaluator:
    """Return an unsaved evaluator of the caller."""
    return Evaluator(
        workspace_id=caller.workspace_id, name=_clean_name(name), created_by_id=caller.user_id
    )


def save_new(evaluator: Evaluator) -> None:
    """Check the evaluator and insert it. Raises `TooManyEvaluators` and the errors of `resolve`."""
    _check(evaluator)
    lock_evaluators(evaluator.workspace_id)
    if Evaluator.objects.for_workspace(evaluator.workspace_id).count() >= MAX_EVALUATORS:
        raise errors.TooManyEvaluators(f"A workspace has at most {MAX_EVALUATORS} evaluators.")
    evaluator.save(force_insert=True)
    _record(Action.EVALUATOR_CREATED, evaluator, after=audit_values(evaluator))


@transaction.atomic
def update_evaluator(
    *, caller: Caller, evaluator: Evaluator, changes: EvaluatorChanges
) -> Evaluator:
    """Raises as `create_evaluator`. A call in progress keeps the evaluator that it began with."""
    before = audit_values(evaluator)
    if changes.name is not msgspec.UNSET:
        evaluator.name = _clean_name(changes.name)
    if changes.metadata is not msgspec.UNSET:
        evaluator.metadata = changes.metadata or {}
    if evaluator.is_code:
        _refuse(evaluator, changes.llm_evaluator)
        if changes.code_evaluator is not None:
            apply_code(evaluator, changes.code_evaluator)
    else:
        _refuse(evaluator, changes.code_evaluator)
        if changes.llm_evaluator is not None:
            _apply(caller, evaluator, changes.llm_evaluator)
    save_changes(evaluator, before)
    return evaluator


def save_changes(evaluator: Evaluator, before: dict[str, Any]) -> None:
    """Check and save a changed evaluator. Raises the errors of `resolve`."""
    _check(evaluator)
    evaluator.save()
    _record(Action.EVALUATOR_UPDATED, evaluator, before=before, after=audit_values(evaluator))


def _apply(caller: Caller, evaluator: Evaluator, body: LlmEvaluatorBody) -> None:
    if body.prompt_repo_handle is not msgspec.UNSET:
        if not body.prompt_repo_handle:
            raise BadEvaluator("`llm_evaluator.prompt_repo_handle` is missing.")
        _set_prompt(caller, evaluator, body.prompt_repo_handle)
    if body.commit_hash_or_tag is not msgspec.UNSET:
        if evaluator.prompt is None:
            raise BadEvaluator("`commit_hash_or_tag` belongs to a `prompt_repo_handle`.")
        evaluator.commit_name = _clean_commit(body.commit_hash_or_tag)
    if body.playground_settings_id is not msgspec.UNSET:
        _set_saved_settings(evaluator, body.playground_settings_id)
    if body.variable_mapping is not msgspec.UNSET:
        evaluator.variable_mapping = body.variable_mapping or {}


def apply_code(evaluator: Evaluator, body: CodeBody | CodeChanges) -> None:
    """Set the source of a function; it is checked when the evaluator is saved."""
    check_language(body.language)
    if body.code is not msgspec.UNSET:
        evaluator.code = body.code


def apply_structured(caller: Caller, evaluator: Evaluator, body: StructuredBody) -> None:
    """Set the judge of an evaluator that is a part of its rule. Raises `BadEvaluator`."""
    if (body.hub_ref is None) == (body.prompt is None):
        raise BadEvaluator("`structured`: send either `hub_ref` or `prompt`.")
    model = None if body.model is None else _read_model_settings(body.model)
    evaluator.variable_mapping = body.variable_mapping or {}
    _set_saved_settings(evaluator, body.playground_settings_id)
    if body.hub_ref is not None:
        if body.schema is not None:
            raise BadEvaluator("`structured.schema`: that of a commit is a part of it.")
        handle, _, commit = body.hub_ref.partition(":")
        _set_prompt(caller, evaluator, handle)
        evaluator.commit_name = _clean_commit(commit)
        evaluator.model = None if model is None else msgspec.to_builtins(model)
        return
    setting = Setting(
        [message_of(role, text) for role, text in body.prompt or ()],
        model or ModelSettings("openai", ""),
        name=evaluator.name,
        template_format=body.template_format,
        response_schema=body.schema,
    )
    set_setting(evaluator, setting)


def set_setting(evaluator: Evaluator, setting: Setting) -> None:
    """Give the evaluator a prompt of its own. Raises `BadEvaluator`."""
    content = msgspec.json.encode(setting)
    if len(content) > MAX_STATE_BYTES:
        raise BadEvaluator(f"The prompt has more than {MAX_STATE_BYTES} bytes.")
    evaluator.setting = msgspec.json.decode(content)
    evaluator.prompt, evaluator.commit_name, evaluator.model = None, "", None


def _read_model_settings(fields: dict[str, Any]) -> ModelSettings:
    """The model of a manifest, or settings as the playground has them."""
    if "lc" in fields or "kwargs" in fields:
        return read_model(fields)
    return convert(fields, ModelSettings, BadEvaluator)


def _set_prompt(caller: Caller, evaluator: Evaluator, name: str) -> None:
    """`name` is a handle, with or without the workspace's own in front."""
    caller.require(Permission.PROMPTS_READ)
    owner, _, handle = name.rpartition("/")
    workspace = Workspace.objects.get(pk=caller.workspace_id)
    if owner and not is_own_name(workspace, owner):
        raise BadEvaluator("The prompt of an evaluator is one of its workspace.")
    evaluator.prompt = find_repository(caller.workspace_id, OWN, handle)
    evaluator.setting, evaluator.commit_name = None, LATEST


def _clean_commit(name: str | None) -> str:
    if name is not None and len(name) > MAX_NAME_LENGTH:
        raise BadEvaluator(f"`commit_hash_or_tag` has at most {MAX_NAME_LENGTH} characters.")
    return name or LATEST


def _set_saved_settings(evaluator: Evaluator, settings_id: UUID | None) -> None:
    evaluator.saved_settings = (
        None if settings_id is None else saved_settings.get(evaluator.workspace_id, settings_id)
    )


def _clean_name(name: str) -> str:
    if not 0 < len(name.strip()) <= MAX_NAME_LENGTH:
        raise BadEvaluator(f"A name has 1 to {MAX_NAME_LENGTH} characters.")
    return name.strip()


def _check(evaluator: Evaluator) -> None:
    if len(msgspec.json.encode(evaluator.metadata)) > MAX_METADATA_BYTES:
        raise BadEvaluator(f"`metadata` has at most {MAX_METADATA_BYTES} bytes.")
    if evaluator.is_code:
        evaluator.feedback_keys = check_code(evaluator.code, evaluator.name)
    else:
        evaluator.feedback_keys = resolve(evaluator).feedback_keys


@transaction.atomic
def delete_evaluator(*, evaluator: Evaluator, with_rules: bool) -> None:
    """Delete the evaluator; its feedback and traces stay. Raises `EvaluatorInUse`."""
    rules = EvaluatorRule.objects.for_workspace(evaluator.workspace_id).filter(evaluator=evaluator)
    if not with_rules and rules.exists():
        raise errors.EvaluatorInUse
    _record(Action.EVALUATOR_DELETED, evaluator, before=audit_values(evaluator))
    evaluator.delete()


def delete_evaluators(
    *, workspace_id: UUID, evaluator_ids: Collection[UUID], with_rules: bool
) -> tuple[list[UUID], dict[UUID, str]]:
    """Delete evaluators one by one; return the ids of those deleted, and why others were not."""
    deleted, failed = [], {}
    for evaluator_id in dict.fromkeys(evaluator_ids):
        try:
            delete_evaluator(
                evaluator=get_evaluator(workspace_id, evaluator_id), with_rules=with_rules
            )
        except AppError as error:
            failed[evaluator_id] = error.detail
        else:
            deleted.append(evaluator_id)
    return deleted, failed


def lock_evaluators(workspace_id: UUID) -> None:
    """Serialize the creation of evaluators and rules until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"evaluators of workspace {workspace_id}"],
        )


def audit_values(evaluator: Evaluator) -> dict[str, Any]:
    return {
        "name": evaluator.name,
        "type": evaluator.type,
        "prompt": None if evaluator.prompt is None else evaluator.prompt.handle,
        "commit": evaluator.commit_name or None,
        "code_digest": (
            sha256(evaluator.code.encode()).hexdigest()[:16] if evaluator.is_code else None
        ),
        "feedback_keys": evaluator.feedback_keys,
    }


def _record(action: Action, evaluator: Evaluator, **values: Any) -> None:
    record(
        action,
        Target("evaluator", evaluator.pk, evaluator.name),
        workspace_id=evaluator.workspace_id,
        **values,
    )
