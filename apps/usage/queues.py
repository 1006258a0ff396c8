"""Running and pending runs on the pages of usage and deployments.

The app that has the queue reports them; it is above the apps that show them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID


class QueueUsage(NamedTuple):
    """Running and pending runs, each with the highest permitted number."""

    owner: str
    """The deployment's name, or "the organization"."""
    running: int
    max_running: int
    """While nothing else runs; 0 without a worker."""
    pending: int
    max_pending: int

    @property
    def running_percent(self) -> int:
        return min(100, self.running * 100 // self.max_running) if self.max_running else 0

    @property
    def pending_percent(self) -> int:
        return min(100, self.pending * 100 // self.max_pending)


class QueueUsageSource(Protocol):
    """A module that reads the runs of a queue."""

    def list_usage(self, organization_id: UUID, workspace_id: UUID) -> list[QueueUsage]: ...

    def get_deployment_usage(self, workspace_id: UUID, deployment_id: UUID) -> QueueUsage: ...


_sources: list[QueueUsageSource] = []


def register_source(source: QueueUsageSource) -> None:
    """Add a source. Safe to repeat."""
    if source not in _sources:
        _sources.append(source)


def list_usage(organization_id: UUID, workspace_id: UUID) -> list[QueueUsage]:
    return [
        usage for source in _sources for usage in source.list_usage(organization_id, workspace_id)
    ]


def list_deployment_usage(workspace_id: UUID, deployment_id: UUID) -> list[QueueUsage]:
    return [source.get_deployment_usage(workspace_id, deployment_id) for source in _sources]
