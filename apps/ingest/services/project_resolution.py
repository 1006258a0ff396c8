"""Which projects the operations of a request go to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from apps.ingest.operations import Operation
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services.projects import ensure_addressed_project, ensure_projects

_AGENT_ADDRESS = re.compile(
    r"lrn:agents/([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
    r"/environments/(local|development|staging|production)",
    re.IGNORECASE,
)


def agent_at(address: str) -> tuple[str, str] | None:
    """The agent and its environment that an address names; None when it names no such thing."""
    parts = _AGENT_ADDRESS.fullmatch(address)
    return None if parts is None else (parts[1], parts[2].upper())


class Destinations:
    """The projects that the operations of a request name."""

    def __init__(self, workspace_id: UUID) -> None:
        self.workspace_id = workspace_id
        self.by_name: dict[str, UUID] = {}
        self.by_id: set[UUID] = set()
        self.by_address: dict[str, UUID] = {}

    def look_up(self, operations: Sequence[Operation]) -> None:
        ids = {one.run.session_id for one in operations if one.run.session_id is not None}
        names = {self._name(one) for one in operations if one.run.session_id is None}
        names -= {None}
        for address in {one.run.address for one in operations if self._is_addressed(one)}:
            if address is not None and (agent := agent_at(address)):
                self.by_address[address] = ensure_addressed_project(self.workspace_id, *agent)
        if ids:
            rows = Project.objects.for_workspace(self.workspace_id).present().filter(pk__in=ids)
            self.by_id |= set(rows.values_list("pk", flat=True))
        if names:
            self.by_name |= ensure_projects(self.workspace_id, [n for n in names if n is not None])

    @staticmethod
    def names_one(operation: Operation) -> bool:
        run = operation.run
        return run.session_id is not None or bool(run.session_name) or run.address is not None

    @staticmethod
    def _is_addressed(operation: Operation) -> bool:
        run = operation.run
        return run.address is not None and run.session_id is None and not run.session_name

    def of(self, operation: Operation) -> UUID | None:
        """The project's id; None when it is none of this workspace, or none is named at all."""
        if operation.run.session_id is not None:
            given = operation.run.session_id
            return given if given in self.by_id else None
        if self._is_addressed(operation):
            return self.by_address.get(str(operation.run.address))
        name = self._name(operation)
        return None if name is None else self.by_name[name]

    @staticmethod
    def _name(operation: Operation) -> str | None:
        """An update without a project belongs to its run's; a beginning goes to the default one."""
        name = operation.run.session_name
        if name:
            return name.replace("\x00", "\ufffd")
        if operation.is_update or operation.run.address is not None:
            return None
        return DEFAULT_PROJECT
