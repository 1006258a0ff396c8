"""Resolves an evaluator to a prompt with a model, and a subject to the request of a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apps.core.errors import AppError
from apps.evaluators import scoring, variables
from apps.evaluators.errors import BadEvaluator
from apps.evaluators.models import Evaluator
from apps.evaluators.variables import Subject
from apps.playground.manifests import read_manifest, read_model
from apps.playground.services.streaming import build_chat
from apps.playground.setting import PromptReference, Setting, check_setting, convert
from apps.playground.templates import list_variables
from apps.prompts.services.lookup import find_commit
from apps.prompts.services.lookup import read_manifest as load_manifest
from apps.providers.catalogue import get_provider
from apps.providers.chat import ChatRequest, ModelSettings


@dataclass(frozen=True, slots=True)
class Judge:
    """A checked prompt with a model, a response schema, and a path for each variable."""

    setting: Setting
    mapping: dict[str, str]
    feedback_keys: list[str]

    @property
    def schema(self) -> dict[str, Any]:
        assert self.setting.response_schema is not None  # noqa: S101  (checked by `resolve`)
        return self.setting.response_schema

    def build_chat(self, subject: Subject) -> ChatRequest:
        """Raises `ValueMissing` and the errors of the playground's `build_chat`."""
        return build_chat(self.setting, variables.read_values(self.mapping, subject))


def resolve(evaluator: Evaluator) -> Judge:
    """Read the prompt of the evaluator, as it is now.

    Raises `BadEvaluator`, `CommitNotFound`, and the errors of a prompt that is not valid.
    """
    setting = _read_setting(evaluator)
    if evaluator.saved_settings is not None:
        setting.model = read_model(evaluator.saved_settings.settings)
    elif evaluator.model is not None:
        setting.model = convert(evaluator.model, ModelSettings)
    if not setting.model.model:
        raise BadEvaluator("The prompt has no model; set `playground_settings_id` or `model`.")
    get_provider(setting.model.provider)
    check_setting(setting)
    if setting.tools:
        raise BadEvaluator("The prompt of an evaluator has no tools.")
    keys = scoring.find_keys(setting.response_schema)
    mapping = variables.complete_mapping(evaluator.variable_mapping, list_variables(setting))
    return Judge(setting, mapping, keys)


def _read_setting(evaluator: Evaluator) -> Setting:
    if evaluator.setting is not None:
        return convert(evaluator.setting, Setting)
    if evaluator.prompt is None:
        raise BadEvaluator("The prompt of the evaluator was deleted.")
    if evaluator.prompt.is_directory:
        raise BadEvaluator("The repository is not a prompt.")
    commit = find_commit(evaluator.prompt, evaluator.commit_name)
    setting, notices = read_manifest(load_manifest(commit))
    if notices:
        raise BadEvaluator(f"The prompt cannot be a judge: {notices[0]}")
    setting.prompt = PromptReference(evaluator.prompt.handle, commit.commit_hash)
    return setting


def describe_problem(evaluator: Evaluator) -> str:
    """Why the judge cannot run; empty if it can, and for code, which only fails when it runs."""
    if evaluator.is_code:
        return ""
    try:
        resolve(evaluator)
    except AppError as error:
        return error.detail
    return ""
