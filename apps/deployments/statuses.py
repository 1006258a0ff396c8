"""Statuses of deployments and revisions, and the allowed transitions.

The values are those that the public deployment clients define.
"""

from __future__ import annotations

from django.db.models import TextChoices


class DeploymentStatus(TextChoices):
    AWAITING_DATABASE = "AWAITING_DATABASE"
    READY = "READY"
    STOPPED = "UNUSED"
    """Stopped by a user: only `READY` serves, and the clients have no other word."""
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
_CANCELLED = frozenset({_S.SKIPPED, _S.INTERRUPTED})

TRANSITIONS: dict[RevisionStatus, frozenset[RevisionStatus]] = {
    _S.CREATING: frozenset({_S.QUEUED, _S.CREATE_FAILED}) | _CANCELLED,
    _S.QUEUED: frozenset({_S.AWAITING_BUILD, _S.CREATE_FAILED}) | _CANCELLED,
    _S.AWAITING_BUILD: frozenset({_S.BUILDING, _S.BUILD_FAILED}) | _CANCELLED,
    # A build whose builder died starts again.
    _S.BUILDING: frozenset({_S.AWAITING_DEPLOY, _S.BUILD_FAILED, _S.AWAITING_BUILD}) | _CANCELLED,
    _S.AWAITING_DEPLOY: frozenset({_S.DEPLOYING, _S.DEPLOY_FAILED}) | _CANCELLED,
    _S.DEPLOYING: frozenset({_S.DEPLOYED, _S.DEPLOY_FAILED, _S.AWAITING_DEPLOY}) | _CANCELLED,
    # A finished build can be deployed again.
    _S.DEPLOYED: frozenset({_S.AWAITING_DEPLOY}),
    _S.DEPLOY_FAILED: frozenset({_S.AWAITING_DEPLOY}),
    _S.INTERRUPTED: frozenset({_S.AWAITING_DEPLOY}),
    _S.CREATE_FAILED: frozenset(),
    _S.BUILD_FAILED: frozenset(),
    _S.SKIPPED: frozenset(),
}

FAILED = frozenset({_S.CREATE_FAILED, _S.BUILD_FAILED, _S.DEPLOY_FAILED})
FINAL = FAILED | _CANCELLED | {_S.DEPLOYED}
PENDING = frozenset({_S.CREATING, _S.QUEUED, _S.AWAITING_BUILD})
"""No builder has started; a newer revision supersedes these."""
IN_PROGRESS = frozenset({_S.BUILDING, _S.AWAITING_DEPLOY, _S.DEPLOYING})
"""A builder holds the revision, or held it before it died."""
