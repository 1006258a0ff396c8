"""Projects as feedback needs them.

The project model belongs to an app above this one, so it is reached through the foreign key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from apps.core.agent_address import parse_agent_address
from apps.feedback.models import Feedback


def _projects(workspace_id: UUID) -> Any:
    model: Any = Feedback._meta.get_field("project").related_model
    return model.objects.for_workspace(workspace_id)


def project_exists(workspace_id: UUID, project_id: UUID) -> bool:
    exists: bool = _projects(workspace_id).present().filter(pk=project_id).exists()
    return exists


def existing_projects(workspace_id: UUID, project_ids: Collection[UUID]) -> set[UUID]:
    """The ids of those projects that exist in the workspace."""
    if not project_ids:
        return set()
    projects = _projects(workspace_id).present().filter(pk__in=project_ids)
    return set(projects.values_list("pk", flat=True))


def project_at_address(workspace_id: UUID, address: str) -> UUID | None:
    """The project of an agent environment; unlike runs, feedback does not create it."""
    agent = parse_agent_address(address)
    if agent is None:
        return None
    agent_id, environment = agent
    projects = (
        _projects(workspace_id).present().filter(agent_id=agent_id, agent_environment=environment)
    )
    project_id: UUID | None = projects.values_list("pk", flat=True).first()
    return project_id


def datasets_of_projects(workspace_id: UUID, project_ids: Collection[UUID]) -> Any:
    """A subquery for the datasets of those projects that are experiments."""
    return _projects(workspace_id).filter(pk__in=project_ids).values("reference_dataset_id")


def experiments_on_dataset(
    workspace_id: UUID, dataset_id: UUID, project_ids: Collection[UUID] | None = None
) -> list[UUID]:
    """The experiments on the dataset: all that exist, or those of `project_ids`."""
    experiments = _projects(workspace_id).filter(reference_dataset_id=dataset_id)
    if project_ids is None:
        experiments = experiments.present()
    else:
        experiments = experiments.filter(pk__in=project_ids)
    return list(experiments.values_list("pk", flat=True))
