"""Operations on deployments and revisions."""

from apps.deployments.services.lifecycle import (
    change_variables,
    create_deployment,
    delete_deployments,
    purge_deployment,
    update_deployment,
)
from apps.deployments.services.revisions import create_revision, interrupt_revision, redeploy
from apps.deployments.services.serving import (
    restart_deployment,
    start_deployment,
    stop_deployment,
)

__all__ = [
    "change_variables",
    "create_deployment",
    "create_revision",
    "delete_deployments",
    "interrupt_revision",
    "purge_deployment",
    "redeploy",
    "restart_deployment",
    "start_deployment",
    "stop_deployment",
    "update_deployment",
]
