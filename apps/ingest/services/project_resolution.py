"""Resolves the projects that the operations of a request name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from apps.feedback.projects import parse_agent_address
from apps.ingest.operations import RunOperation
from apps.trace_store.dotted_order import EARLIEST_START
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
        """Look up the projects of the operations; create missing names and addresses.

        A created project starts with the earliest of its runs: clients read a project's runs from
        its start time on, and the runs started before their request arrived.
        """
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
                runs = [item for item in operations if item.run.address == address]
                self._by_address[address] = ensure_addressed_project(
                    self.workspace_id, *agent, partial(_earliest_start, runs)
                )
        if ids:
            projects = Project.objects.for_workspace(self.workspace_id).present()
            self._ids |= set(projects.filter(pk__in=ids).values_list("pk", flat=True))
        if names:
            self._by_name |= ensure_projects(
                self.workspace_id,
                [name for name in names if name is not None],
                lambda name: _earliest_start(
                    [item for item in operations if _project_name(item) == name]
                ),
            )

    def project_of(self, operation: RunOperation) -> UUID | None:
        """The project id; None if the operation names no project or one of another workspace."""
        if operation.run.session_id is not None:
            project_id = operation.run.session_id
            return project_id if project_id in self._ids else None
        if _uses_address(operation):
            return self._by_address.get(str(operation.run.address))
        name = _project_name(operation)
        return None if name is None else self._by_name[name]


def _earliest_start(operations: Sequence[RunOperation]) -> datetime:
    """Return the earliest start of the runs, at the latest now."""
    times = [datetime.now(UTC)]
    for operation in operations:
        start_time = operation.content.columns.get("start_time")
        position = operation.position
        times += [time for time in (start_time, position and position.partition_time) if time]
    return max(min(times), EARLIEST_START)


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
