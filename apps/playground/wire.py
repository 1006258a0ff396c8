"""Bodies of the playground's smaller routes; unknown fields are refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from apps.playground.setting import State, TemplateFormat
from apps.providers.chat import ModelSettings


class ShareBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The columns of a link."""

    state: State
    title: str = ""


class SavedSettingsBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A saved configuration of a model; `settings` is its manifest."""

    settings: dict[str, Any]
    name: str | None = None
    description: str | None = None
    options: dict[str, Any] | None = None


class SavedSettingsChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a saved configuration; absent fields stay."""

    settings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    options: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class InvokePromptBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Messages as pairs of role and text, and their variables."""

    messages: list[tuple[str, str]]
    inputs: dict[str, Any] = {}
    template_format: TemplateFormat = "f-string"
    model: ModelSettings | None = None


class CanvasBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A text of a prompt, and what is to change in it or in the highlighted part."""

    artifact: str
    messages: list[tuple[str, str]]
    highlighted: str | None = None
    template_format: TemplateFormat = "f-string"
    model: ModelSettings | None = None


class GenerateQueryBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Words to write a query of runs from."""

    query: str
    feedback_keys: list[str] = []
    model: ModelSettings | None = None


class PlaygroundExperimentBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A prompt with a model, as a manifest or the commit of a repository, and a dataset."""

    dataset_id: UUID
    manifest: dict[str, Any] | None = None
    repo_handle: str | None = None
    commit: str | None = None
    project_name: str | None = None
    dataset_splits: list[str] = []
    as_of: str | None = None
    mapping: dict[str, str] | None = None
    repetitions: int = 1
    batch_size: int = 4
    evaluator_rule_ids: list[UUID] | None = None
    secrets: dict[str, str] = {}
    """Only empty: keys are secrets of the workspace."""


class StudioExperimentBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A deployed agent and a dataset."""

    dataset_id: UUID
    deployment_id: UUID
    assistant_id: str | None = None
    project_name: str | None = None
    dataset_splits: list[str] = []
    as_of: str | None = None
    input_mapping: dict[str, Any] | None = None
    repetitions: int = 1
    batch_size: int = 4
    evaluator_rule_ids: list[UUID] | None = None
