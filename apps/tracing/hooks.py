"""What apps of higher layers tell tracing. They register it in `AppConfig.ready`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

DatasetLookup = Callable[[UUID, UUID], bool]
"""Called with the ids of a workspace and of a dataset; returns whether it has that dataset."""

SourceRunLookup = Callable[[UUID, Collection[UUID]], Collection[UUID]]
"""Called with a workspace and ids of runs; returns those that an example was made from."""


@dataclass(frozen=True)
class PromptLink:
    """The prompt commit that a run used."""

    label: str
    url: str


PromptLookup = Callable[[UUID, Mapping[str, Any]], PromptLink | None]
"""Called with a workspace and a run's metadata; returns None if it names no existing commit."""


@dataclass(frozen=True)
class DeploymentLink:
    """A deployment and, for a run, the revision that executed it."""

    name: str
    url: str
    revision: str = ""
    revision_url: str = ""


@dataclass(frozen=True)
class DeploymentSource:
    """Where the deployments of runs and of projects are looked up."""

    find_of_run: Callable[[UUID, Mapping[str, Any]], DeploymentLink | None]
    """Called with a workspace and a run's metadata."""
    find_of_project: Callable[[UUID, str], DeploymentLink | None]
    """Called with a workspace and the name of a project."""


@dataclass(frozen=True)
class LinkSource:
    """Public links of another app, for the workspace's list of links."""

    list_newest: Callable[[UUID, int], Sequence[dict[str, Any]]]
    """Returns so many links of the workspace as JSON with `created_at`, newest first."""
    revoke: Callable[[UUID, Collection[UUID]], None]
    """Revokes the workspace's links with these tokens; other tokens are ignored."""


_dataset_lookups: list[DatasetLookup] = []
_source_run_lookups: list[SourceRunLookup] = []
_prompt_lookups: list[PromptLookup] = []
_deployment_sources: list[DeploymentSource] = []
link_sources: list[LinkSource] = []


def register_dataset_lookup(lookup: DatasetLookup) -> None:
    """Register where datasets are looked up; repeating has no effect."""
    if lookup not in _dataset_lookups:
        _dataset_lookups.append(lookup)


def dataset_exists(workspace_id: UUID, dataset_id: UUID) -> bool:
    """Return whether the workspace has the dataset; no one has one without a registered lookup."""
    return any(lookup(workspace_id, dataset_id) for lookup in _dataset_lookups)


def register_source_run_lookup(lookup: SourceRunLookup) -> None:
    """Register where the source runs of examples are looked up; repeating has no effect."""
    if lookup not in _source_run_lookups:
        _source_run_lookups.append(lookup)


def find_source_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
    """Return the ids of the runs that an example of a dataset was made from."""
    return {run_id for lookup in _source_run_lookups for run_id in lookup(workspace_id, run_ids)}


def register_prompt_lookup(lookup: PromptLookup) -> None:
    """Register where prompt commits are looked up; repeating has no effect."""
    if lookup not in _prompt_lookups:
        _prompt_lookups.append(lookup)


def find_prompt(workspace_id: UUID, metadata: Mapping[str, Any]) -> PromptLink | None:
    """Return the prompt commit that the metadata of a run names, if the workspace has it."""
    links = (lookup(workspace_id, metadata) for lookup in _prompt_lookups)
    return next((link for link in links if link is not None), None)


def register_deployment_source(source: DeploymentSource) -> None:
    """Register where deployments are looked up; repeating has no effect."""
    if source not in _deployment_sources:
        _deployment_sources.append(source)


def find_deployment(workspace_id: UUID, metadata: Mapping[str, Any]) -> DeploymentLink | None:
    """Return the deployment and revision that the metadata of a run names, if they exist."""
    links = (source.find_of_run(workspace_id, metadata) for source in _deployment_sources)
    return next((link for link in links if link is not None), None)


def find_deployment_of_project(workspace_id: UUID, name: str) -> DeploymentLink | None:
    """Return the deployment that traces to the project with this name, if there is one."""
    links = (source.find_of_project(workspace_id, name) for source in _deployment_sources)
    return next((link for link in links if link is not None), None)


def register_link_source(source: LinkSource) -> None:
    """Register public links; repeating has no effect."""
    if source not in link_sources:
        link_sources.append(source)
