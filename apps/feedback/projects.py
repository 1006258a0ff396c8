"""Looks up the projects that feedback refers to.

The project model belongs to a higher layer, so it is reached through the foreign key.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from uuid import UUID

from apps.feedback.models import Feedback

_AGENT_ADDRESS = re.compile(
    r"lrn:agents/([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
    r"/environments/(local|development|staging|production)",
    re.IGNORECASE,
)


def parse_agent_address(address: str) -> tuple[str, str] | None:
    """Parse `lrn:agents/<agent>/environments/<environment>`; None for a malformed address."""
    match = _AGENT_ADDRESS.fullmatch(address)
    return None if match is None else (match[1], match[2].upper())


def _projects(workspace_id: UUID) -> Any:
    model: Any = Feedback._meta.get_field("project").related_model
    return model.objects.for_workspace(workspace_id)


def project_exists(workspace_id: UUID, project_id: UUID) -> bool:
    exists: bool = _projects(workspace_id).present().filter(pk=project_id).exists()
    return exists


def existing_projects(workspace_id: UUID, project_ids: Collection[UUID]) -> set[UUID]:
    """Return the ids in `project_ids` of projects that exist in the workspace."""
    if not project_ids:
        return set()
    projects = _projects(workspace_id).present().filter(pk__in=project_ids)
    return set(projects.values_list("pk", flat=True))


def project_at_address(workspace_id: UUID, address: str) -> UUID | None:
    """Return the id of the project of an agent environment, or None; it is not created."""
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
    """Return a subquery of the datasets that the experiments in `project_ids` ran on."""
    return _projects(workspace_id).filter(pk__in=project_ids).values("reference_dataset_id")


def experiments_on_dataset(
    workspace_id: UUID, dataset_id: UUID, project_ids: Collection[UUID] | None = None
) -> list[UUID]:
    """Return the ids of the experiments on the dataset, restricted to `project_ids` if given."""
    experiments = _projects(workspace_id).filter(reference_dataset_id=dataset_id)
    if project_ids is None:
        experiments = experiments.present()
    else:
        experiments = experiments.filter(pk__in=project_ids)
    return list(experiments.values_list("pk", flat=True))
