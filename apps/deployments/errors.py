"""What can go wrong with deployments, in words for who asked."""

from __future__ import annotations

from collections.abc import Iterable

from apps.core import errors


class NameTaken(errors.Conflict):
    code = "deployment_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"This workspace already has a deployment named {name}.")


class ReservedVariables(errors.BadRequest):
    code = "reserved_variables"

    def __init__(self, names: Iterable[str]) -> None:
        found = sorted(names)
        super().__init__(
            f"The platform sets these variables itself: {', '.join(found)}. Leave them out.",
            [{"name": name} for name in found],
        )


class UnusableVariables(errors.Invalid):
    code = "unusable_variables"


class UnusableAddress(errors.Invalid):
    """A Git address that is not taken, for a reason that a look at it shows."""

    code = "unusable_git_address"


class SourceNotOffered(errors.BadRequest):
    code = "source_not_offered"


class NotBuilt(errors.Conflict):
    code = "revision_not_built"
    detail = "This revision was never built to its end, so it cannot be deployed again."


class AlreadyOver(errors.Conflict):
    code = "revision_over"
    detail = "This revision is not in the making any more."


class StepRefused(errors.Conflict):
    code = "revision_step_refused"

    def __init__(self, now: str, to: str) -> None:
        super().__init__(f"A revision that is {now} cannot become {to}.")


class LeaseLost(Exception):
    """Somebody else works on the revision now, or a person stopped it: leave it alone."""
