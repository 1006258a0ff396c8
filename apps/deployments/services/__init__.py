"""Operations on deployments and revisions."""

from apps.deployments.services.lifecycle import (
    create_deployment,
    delete_deployments,
    purge_deployment,
    update_deployment,
)
from apps.deployments.services.revisions import create_revision, interrupt_revision, redeploy

__all__ = [
    "create_deployment",
    "create_revision",
    "delete_deployments",
    "interrupt_revision",
    "purge_deployment",
    "redeploy",
    "update_deployment",
]
