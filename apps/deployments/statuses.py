"""The states of deployments and revisions, and which may follow which.

The words are those of the public deployment clients; they know no others.
"""

from __future__ import annotations

from django.db.models import TextChoices


class DeploymentStatus(TextChoices):
    AWAITING_DATABASE = "AWAITING_DATABASE"
    READY = "READY"
    AWAITING_DELETE = "AWAITING_DELETE"


class RevisionStatus(TextChoices):
    CREATING = "CREATING"
    QUEUED = "QUEUED"
    AWAITING_BUILD = "AWAITING_BUILD"
    BUILDING = "BUILDING"
    AWAITING_DEPLOY = "AWAITING_DEPLOY"
    DEPLOYING = "DEPLOYING"
    DEPLOYED = "DEPLOYED"
    CREATE_FAILED = "CREATE_FAILED"
    BUILD_FAILED = "BUILD_FAILED"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    SKIPPED = "SKIPPED"
    INTERRUPTED = "INTERRUPTED"


_S = RevisionStatus
_STOPS = frozenset({_S.SKIPPED, _S.INTERRUPTED})

FOLLOWS: dict[RevisionStatus, frozenset[RevisionStatus]] = {
    _S.CREATING: frozenset({_S.QUEUED, _S.CREATE_FAILED}) | _STOPS,
    _S.QUEUED: frozenset({_S.AWAITING_BUILD, _S.CREATE_FAILED}) | _STOPS,
    _S.AWAITING_BUILD: frozenset({_S.BUILDING, _S.BUILD_FAILED}) | _STOPS,
    # What a dead builder left begins again.
    _S.BUILDING: frozenset({_S.AWAITING_DEPLOY, _S.BUILD_FAILED, _S.AWAITING_BUILD}) | _STOPS,
    _S.AWAITING_DEPLOY: frozenset({_S.DEPLOYING, _S.DEPLOY_FAILED}) | _STOPS,
    _S.DEPLOYING: frozenset({_S.DEPLOYED, _S.DEPLOY_FAILED, _S.AWAITING_DEPLOY}) | _STOPS,
    # What was built once may be deployed again.
    _S.DEPLOYED: frozenset({_S.AWAITING_DEPLOY}),
    _S.DEPLOY_FAILED: frozenset({_S.AWAITING_DEPLOY}),
    _S.INTERRUPTED: frozenset({_S.AWAITING_DEPLOY}),
    _S.CREATE_FAILED: frozenset(),
    _S.BUILD_FAILED: frozenset(),
    _S.SKIPPED: frozenset(),
}

FAILED = frozenset({_S.CREATE_FAILED, _S.BUILD_FAILED, _S.DEPLOY_FAILED})
FINAL = FAILED | _STOPS | {_S.DEPLOYED}
WAITING = frozenset({_S.CREATING, _S.QUEUED, _S.AWAITING_BUILD})
"""Nobody has begun; a newer revision overtakes these."""
WORKING = frozenset({_S.BUILDING, _S.AWAITING_DEPLOY, _S.DEPLOYING})
"""A builder has it, or had it before it died."""
