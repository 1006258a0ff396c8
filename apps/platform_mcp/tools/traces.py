"""Tools that read projects, runs, threads and statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import PlatformApi, ToolError, find_dataset, find_project
from apps.platform_mcp.pages import paginate
from apps.platform_mcp.registry import Arguments, Flag, JSONObject, Texts, ToolGroup
from apps.platform_mcp.tools.shared import PageArguments

MAX_RUNS = 100
MAX_TURNS = 100
MAX_PROJECTS = 20
"""Of one search; each is a request to the API."""
_TRACE_FIELDS = (
    "run_type", "error", "inputs", "outputs", "total_tokens", "total_cost", "feedback_stats",
    "app_path", "thread_id", "name", "start_time", "end_time", "status",
)  # fmt: skip

tools = ToolGroup()


class ListProjects(Arguments):
    limit: int = Field(5, ge=1, le=100)
    project_name: str | None = Field(None, description="A part of the name.")
    more_info: Flag = Field(False, description="Return all fields of the projects.")
    reference_dataset_id: UUID | None = Field(None, description="Only experiments on the dataset.")
    reference_dataset_name: str | None = None


@tools.declare("List projects", Permission.PROJECTS_READ)
def list_projects(api: PlatformApi, arguments: ListProjects) -> JSONObject:
    """List tracing projects, the ones with the latest traces first."""
    dataset_id = None
    if arguments.reference_dataset_id or arguments.reference_dataset_name:
        dataset_id = find_dataset(
            api, arguments.reference_dataset_id, arguments.reference_dataset_name
        )
    projects = api.get(
        "/sessions",
        limit=arguments.limit,
        name_contains=arguments.project_name,
        reference_free=None if dataset_id else True,
        reference_dataset=dataset_id,
    )
    if arguments.more_info:
        return {"projects": projects}
    return {"projects": [{"name": row["name"], "project_id": row["id"]} for row in projects]}


class FetchRuns(PageArguments):
    project_name: Texts = Field(
        max_length=MAX_PROJECTS, description="The project's name, or a list of names."
    )
    limit: int = Field(50, ge=1, description=f"Runs in all pages, {MAX_RUNS} at most.")
    trace_id: UUID | None = None
    run_type: str | None = Field(None, description="llm, chain, tool, retriever, ...")
    error: Flag | None = Field(None, description="Only failed runs, or only the others.")
    is_root: Flag | None = Field(None, description="Only the first run of each trace.")
    filter: str | None = Field(
        None, description='A filter expression, such as and(gt(latency, "5s"), has(tags, "beta")).'
    )
    trace_filter: str | None = Field(None, description="A filter of the trace's first run.")
    tree_filter: str | None = Field(None, description="A filter of any run of the trace.")
    order_by: Literal["-start_time", "start_time"] = "-start_time"
    reference_example_id: UUID | None = None


@tools.declare("Search runs", Permission.RUNS_READ, Permission.PROJECTS_READ)
def fetch_runs(api: PlatformApi, arguments: FetchRuns) -> JSONObject:
    """Search the runs of projects, newest first, with inputs and outputs.

    Runs are traces (is_root) and the steps within them: model calls, tools, chains.
    """
    if not arguments.project_name:
        raise ToolError("project_name: must name a project.")
    page = api.post(
        "/runs/query",
        {
            "session": [find_project(api, name) for name in arguments.project_name],
            "trace": arguments.trace_id,
            "run_type": arguments.run_type,
            "error": arguments.error,
            "is_root": arguments.is_root,
            "filter": arguments.filter,
            "trace_filter": arguments.trace_filter,
            "tree_filter": arguments.tree_filter,
            "order": "desc" if arguments.order_by.startswith("-") else "asc",
            "reference_example": arguments.reference_example_id
            and [arguments.reference_example_id],
            "limit": min(arguments.limit, MAX_RUNS),
        },
    )
    return paginate(
        page["runs"][: arguments.limit],
        "runs",
        page_number=arguments.page_number,
        max_chars=arguments.max_chars_per_page,
        preview_chars=arguments.preview_chars,
    )


class ReadRun(Arguments):
    run_id: UUID
    project_name: str | None = Field(None, description="If several projects have the run.")


@tools.declare("Read a run", Permission.RUNS_READ)
def read_run(api: PlatformApi, arguments: ReadRun) -> JSONObject:
    """Read one run with all fields; very long texts are shortened."""
    name = arguments.project_name
    project_id = None if name is None else find_project(api, name)
    run: JSONObject = api.get(f"/runs/{arguments.run_id}", session_id=project_id)
    return run


class FetchTrace(Arguments):
    project_name: str | None = Field(None, description="Read the latest trace of this project.")
    trace_id: UUID | None = Field(None, description="Preferred to the project.")


@tools.declare("Read a trace", Permission.RUNS_READ, Permission.PROJECTS_READ)
def fetch_trace(api: PlatformApi, arguments: FetchTrace) -> JSONObject:
    """Read a trace's first run: inputs, outputs, tokens, cost and feedback."""
    name, trace_id = arguments.project_name, arguments.trace_id
    if name is None and trace_id is None:
        raise ToolError("Name a project or a trace.")
    selection: JSONObject = (
        {"session": [find_project(api, name)]} if name and not trace_id else {"id": [trace_id]}
    )
    page = api.post("/runs/query", {**selection, "is_root": True, "limit": 1})
    if not page["runs"]:
        raise ToolError("There is no such trace.")
    run = page["runs"][0]
    return {"trace_id": run["trace_id"], "id": run["id"]} | {n: run.get(n) for n in _TRACE_FIELDS}


class GetThreadHistory(PageArguments):
    thread_id: str = Field(min_length=1)
    project_name: str
    cursor: str | None = Field(
        None, description=f"`next_cursor` of a longer thread: its next {MAX_TURNS} turns."
    )


@tools.declare("Read a conversation", Permission.RUNS_READ, Permission.PROJECTS_READ)
def get_thread_history(api: PlatformApi, arguments: GetThreadHistory) -> JSONObject:
    """Read the messages of a thread, oldest first, each once."""
    page = api.get(
        f"/v2/threads/{arguments.thread_id}/messages",
        project_id=find_project(api, arguments.project_name),
        limit=MAX_TURNS,
        cursor=arguments.cursor,
    )
    items = [item for item in page["items"] if item["type"] != "turn_boundary"]
    result = paginate(
        [_to_message(item) for item in items],
        "result",
        page_number=arguments.page_number,
        max_chars=arguments.max_chars_per_page,
        preview_chars=arguments.preview_chars,
    )
    return {**result, "next_cursor": page["next_cursor"]}


def _to_message(item: JSONObject) -> JSONObject:
    if item["type"] == "message":
        message: JSONObject = item["message"]
        return message
    return {**item["aiMessage"], "tool_calls": item["toolCalls"]}


class GetStatistics(Arguments):
    project_name: str | None = None
    trace_id: UUID | None = Field(None, description="Only the runs of this trace.")
    filter: str | None = Field(None, description="A filter expression.")
    is_root: Flag | None = Field(None, description="Only the first run of each trace.")
    start_time: datetime | None = Field(None, description="Only runs from this time, with zone.")
    end_time: datetime | None = None


@tools.declare("Statistics of runs", Permission.RUNS_READ, Permission.PROJECTS_READ)
def get_project_runs_stats(api: PlatformApi, arguments: GetStatistics) -> JSONObject:
    """Count the runs of a project or trace: errors, latency, tokens, cost and feedback."""
    name = arguments.project_name
    if name is None and arguments.trace_id is None:
        raise ToolError("Name a project or a trace.")
    stats = api.post(
        "/runs/stats",
        {
            "session": None if name is None else [find_project(api, name)],
            "trace": arguments.trace_id,
            "filter": arguments.filter,
            "is_root": arguments.is_root,
            "start_time": arguments.start_time,
            "end_time": arguments.end_time,
        },
    )
    stats.pop("run_facets", None)
    return {**stats, "project_name": name}
