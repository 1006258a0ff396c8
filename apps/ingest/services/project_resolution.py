"""Resolves the projects that the operations of a request name."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.feedback.projects import parse_agent_address
from apps.ingest.operations import RunOperation
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services.projects import ensure_addressed_project, ensure_projects


class ProjectResolver:
    """The projects of a request by id, name and agent address."""

    def __init__(self, workspace_id: UUID) -> None:
        self.workspace_id = workspace_id
        self._by_name: dict[str, UUID] = {}
        self._ids: set[UUID] = set()
        self._by_address: dict[str, UUID] = {}

    def load(self, operations: Sequence[RunOperation]) -> None:
        """Look up the projects of the operations; create missing names and addresses."""
        ids = {
            operation.run.session_id
            for operation in operations
            if operation.run.session_id is not None
        }
        names = {
            _project_name(operation) for operation in operations if operation.run.session_id is None
        }
        names -= {None}
        for address in {
            operation.run.address for operation in operations if _uses_address(operation)
        }:
            if address is not None and (agent := parse_agent_address(address)):
                self._by_address[address] = ensure_addressed_project(self.workspace_id, *agent)
        if ids:
            projects = Project.objects.for_workspace(self.workspace_id).present()
            self._ids |= set(projects.filter(pk__in=ids).values_list("pk", flat=True))
        if names:
            self._by_name |= ensure_projects(self.workspace_id, [n for n in names if n is not None])

    def project_of(self, operation: RunOperation) -> UUID | None:
        """The project id; None if the operation names no project or one of another workspace."""
        if operation.run.session_id is not None:
            project_id = operation.run.session_id
            return project_id if project_id in self._ids else None
        if _uses_address(operation):
            return self._by_address.get(str(operation.run.address))
        name = _project_name(operation)
        return None if name is None else self._by_name[name]


def _uses_address(operation: RunOperation) -> bool:
    run = operation.run
    return run.address is not None and run.session_id is None and not run.session_name


def _project_name(operation: RunOperation) -> str | None:
    """The name of the project; None if an address or the stored run determines the project."""
    name = operation.run.session_name
    if name:
        return name.replace("\x00", "\ufffd")
    if operation.is_update or operation.run.address is not None:
        return None
    return DEFAULT_PROJECT
