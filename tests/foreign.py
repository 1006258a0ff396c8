"""For each parameter of a route: a real row of a workspace that the outsider does not belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.factories.organizations import WorkspaceFactory

FOREIGN: dict[str, Callable[[], Any]] = {
    "workspace_id": lambda: WorkspaceFactory(name="sentinel").pk,
}
