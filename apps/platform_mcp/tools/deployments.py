"""Tools that read the status and the logs of deployments."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import PlatformApi, ToolError, find_deployment
from apps.platform_mcp.registry import Arguments, JSONObject, ToolGroup

MAX_REVISIONS = 5
_FIELDS = (
    "id", "name", "display_name", "status", "source_config", "source_revision_config",
    "latest_revision_id", "active_revision_id", "created_at", "updated_at",
)  # fmt: skip
_REVISION_FIELDS = ("id", "status", "source_revision_config", "created_at", "updated_at")

tools = ToolGroup()


class ListDeployments(Arguments):
    name_contains: str | None = None
    status: str | None = Field(None, description="For example READY.")
    limit: int = Field(20, ge=1, le=100)
    offset: int = Field(0, ge=0)


@tools.declare("List deployments", Permission.DEPLOYMENTS_READ)
def list_deployments(api: PlatformApi, arguments: ListDeployments) -> JSONObject:
    """List deployed agents with their status, newest first."""
    query = arguments.model_dump()
    page = api.get("/v2/deployments", **query)
    rows = [{name: row.get(name) for name in _FIELDS} for row in page["resources"]]
    return {"deployments": rows, "next_offset": page["offset"]}


class DeploymentArguments(Arguments):
    deployment: str = Field(min_length=1, description="Name or id of the deployment.")


@tools.declare("Status of a deployment", Permission.DEPLOYMENTS_READ)
def get_deployment(api: PlatformApi, arguments: DeploymentArguments) -> JSONObject:
    """Read a deployment's status with its latest revisions."""
    deployment_id = find_deployment(api, arguments.deployment)
    row = api.get(f"/v2/deployments/{deployment_id}")
    page = api.get(f"/v2/deployments/{deployment_id}/revisions", limit=MAX_REVISIONS)
    revisions = [{n: r.get(n) for n in _REVISION_FIELDS} for r in page["resources"]]
    return {**{name: row.get(name) for name in _FIELDS}, "revisions": revisions}


class GetLogs(DeploymentArguments):
    kind: Literal["server", "build"] = "server"
    revision_id: UUID | None = Field(None, description="Default for builds: the latest revision.")
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = Field(
        None, description="This level and higher ones."
    )
    query: str | None = Field(None, description="A text in the line.")
    limit: int = Field(100, ge=1, le=1000)
    offset: str | None = Field(None, description="`next_offset` of the previous page.")


@tools.declare("Logs of a deployment", Permission.DEPLOYMENTS_READ)
def get_deployment_logs(api: PlatformApi, arguments: GetLogs) -> JSONObject:
    """Read log lines of a deployed agent or of its build, newest first."""
    deployment_id = find_deployment(api, arguments.deployment)
    revision_id = arguments.revision_id
    if arguments.kind == "build" and revision_id is None:
        revision_id = api.get(f"/v2/deployments/{deployment_id}")["latest_revision_id"]
        if revision_id is None:
            raise ToolError("The deployment has no revision.")
    name = "build_logs" if arguments.kind == "build" else "deploy_logs"
    revision = f"/revisions/{revision_id}" if revision_id else ""
    body = arguments.model_dump(include={"level", "query", "limit", "offset"})
    page: JSONObject = api.post(
        f"/v1/projects/{deployment_id}{revision}/{name}", {**body, "order": "desc"}
    )
    return page
