"""Hooks that higher apps connect to in `AppConfig.ready`.

A hook runs in the transaction of the change; an exception rolls the change back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec
from uuid import UUID

from apps.organizations.models import Organization, Workspace

P = ParamSpec("P")


class Hook(Generic[P]):
    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def connect(self, function: Callable[P, object]) -> Callable[P, object]:
        """Connect the function; repeating has no effect. Usable as a decorator."""
        if function not in self._functions:
            self._functions.append(function)
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for function in self._functions:
            function(*args, **kwargs)


workspace_created: Hook[[Workspace]] = Hook()
workspace_deleted: Hook[[Workspace]] = Hook()
"""Stop the running work of the workspace and delete its data."""
member_removed: Hook[[UUID, UUID]] = Hook()
"""Ids of the organization and the user."""
public_links_revoked: Hook[[Organization]] = Hook()
"""Revoke every public link of the organization."""
