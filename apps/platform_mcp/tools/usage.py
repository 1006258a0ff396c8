"""The tool that reads the organization's usage."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from apps.platform_mcp.api import PlatformApi
from apps.platform_mcp.registry import Arguments, Flag, JSONObject, ToolGroup

tools = ToolGroup()


class GetBillingUsage(Arguments):
    starting_on: datetime = Field(description="The first day, ISO 8601.")
    ending_before: datetime = Field(description="The day after the last one.")
    workspace: str | None = Field(None, description="Id or name of one workspace.")
    on_current_plan: Flag = Field(True, description="Usage of the current plan only.")


@tools.declare("Usage of the organization")
def get_billing_usage(api: PlatformApi, arguments: GetBillingUsage) -> JSONObject:
    """Read traces, runs and agent time of each workspace of the organization.

    It needs a key that may read the organization's usage.
    """
    usage = api.get(
        "/orgs/current/billing/usage",
        starting_on=arguments.starting_on.isoformat(),
        ending_before=arguments.ending_before.isoformat(),
        on_current_plan=arguments.on_current_plan,
    )
    names = {row["id"]: row["display_name"] for row in api.get("/workspaces")}
    return {"usage": [_with_names(metric, names, arguments.workspace) for metric in usage]}


def _with_names(metric: JSONObject, names: dict[str, str], workspace: str | None) -> JSONObject:
    groups = {
        workspace_id: {"workspace_name": names.get(workspace_id, workspace_id), "value": value}
        for workspace_id, value in metric["groups"].items()
        if workspace in (None, workspace_id, names.get(workspace_id))
    }
    return {**metric, "groups": groups}
