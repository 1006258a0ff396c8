"""What can be done with deployments and revisions, one function a deed."""

from apps.deployments.services.lifecycle import (
    create_deployment,
    delete_deployments,
    erase_deployment,
    update_deployment,
)
from apps.deployments.services.revisions import create_revision, interrupt_revision, redeploy

__all__ = [
    "create_deployment",
    "create_revision",
    "delete_deployments",
    "erase_deployment",
    "interrupt_revision",
    "redeploy",
    "update_deployment",
]
