"""What apps above this one have to do when something happens here.

They connect themselves when they are loaded. Called in the transaction of the deed: what raises
undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec
from uuid import UUID

from apps.organizations.models import Organization, Workspace

P = ParamSpec("P")


class Hook(Generic[P]):
    def __init__(self) -> None:
        self._called: list[Callable[P, object]] = []

    def connect(self, function: Callable[P, object]) -> Callable[P, object]:
        """Call it from now on; once, however often it is connected. Usable as a decorator."""
        if function not in self._called:
            self._called.append(function)
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for function in self._called:
            function(*args, **kwargs)


workspace_created: Hook[[Workspace]] = Hook()
workspace_deleted: Hook[[Workspace]] = Hook()
"""Nobody can enter any more; what works there has to stop, what lies there has to go."""
member_removed: Hook[[UUID, UUID]] = Hook()
"""Organization and person."""
public_links_revoked: Hook[[Organization]] = Hook()
"""Every public link of the organization is to be taken away."""
