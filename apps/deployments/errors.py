"""Errors of deployments and revisions."""

from __future__ import annotations

from collections.abc import Iterable

from apps.core import errors


class NameTaken(errors.Conflict):
    code = "deployment_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"This workspace already has a deployment named {name}.")


class QuotaReached(errors.RateLimited):
    code = "deployment_quota"


class ReservedVariables(errors.BadRequest):
    code = "reserved_variables"

    def __init__(self, names: Iterable[str]) -> None:
        sorted_names = sorted(names)
        super().__init__(
            f"The platform sets these variables: {', '.join(sorted_names)}. Remove them.",
            [{"name": name} for name in sorted_names],
        )


class InvalidVariables(errors.Invalid):
    code = "unusable_variables"


class InvalidGitAddress(errors.Invalid):
    """A Git address or ref is malformed or not allowed by the settings."""

    code = "unusable_git_address"


class SourceNotSupported(errors.BadRequest):
    code = "source_not_offered"


class TooManyWebhooks(errors.Invalid):
    code = "too_many_deployment_webhooks"
    detail = "The workspace has the maximum number of deployment webhooks."


class RevisionNotBuilt(errors.Conflict):
    code = "revision_not_built"
    detail = "The revision has no finished build, so it cannot be deployed again."


class OtherRevisionInProgress(errors.Conflict):
    code = "other_revision_in_progress"

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Revision {number} is in progress. Wait until it has finished or stop it."
        )


class NotDeployed(errors.Conflict):
    code = "deployment_not_deployed"
    detail = "No revision of the deployment has been deployed yet."


class DeploymentStopped(errors.Conflict):
    code = "deployment_stopped"
    detail = "The deployment is stopped. Start it first."


class RevisionFinished(errors.Conflict):
    code = "revision_over"
    detail = "The revision has already finished."


class InvalidTransition(errors.Conflict):
    code = "revision_step_refused"

    def __init__(self, status: str, to: str) -> None:
        super().__init__(f"A revision in status {status} cannot change to {to}.")


class LeaseLost(Exception):
    """Another builder holds the revision, or a user stopped it: stop working on it."""
