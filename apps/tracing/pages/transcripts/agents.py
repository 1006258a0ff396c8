"""Finds the agents of a trace: the root, and each run that begins an agent within another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.trace_store import RunRow, RunType

CONTENT_TYPES = frozenset({RunType.LLM, RunType.TOOL, RunType.RETRIEVER})
"""The runs that a transcript shows; the others only wrap them."""
_METADATA_KEYS = (b"ls_agent_type", b"lc_agent_name", b"ls_message_view_exclude", b"invoke_agent")
_HIDDEN_AGENT_TYPES = ("middleware", "compaction")
_SUBAGENT = "subagent"
_AGENT_RUN_TYPE = "agent"
_OPERATION_KEY = "gen_ai.operation.name"
_AGENT_OPERATION = "invoke_agent"


@dataclass
class Agent:
    """An agent of a trace with the runs that are its own."""

    row: RunRow
    name: str
    tool_run_id: UUID | None = None
    """The tool run of the outer agent that called this one."""
    runs: list[RunRow] = field(default_factory=list)
    """Its model, tool and retriever runs, without those of agents within it."""
    tool_run_ids: dict[UUID, UUID] = field(default_factory=dict)
    """For each of its retriever runs within a tool run, that tool run."""
    agents: list[Agent] = field(default_factory=list)
    failures: list[RunRow] = field(default_factory=list)
    """Its other runs that failed by themselves, not because a run below them failed."""

    def walk(self) -> Iterator[Agent]:
        pending = [self]
        while pending:
            agent = pending.pop()
            yield agent
            pending += agent.agents

    @property
    def model_calls(self) -> int:
        return sum(run.is_model_call for run in self.runs)

    @property
    def tool_calls(self) -> int:
        return sum(run.run_type == RunType.TOOL for run in self.runs)


def has_messages(rows: Sequence[RunRow]) -> bool:
    """Return whether a trace has a conversation to show, rather than one call or none."""
    return any(row.is_model_call and not row.is_root for row in rows)


def count_hidden(rows: Sequence[RunRow]) -> int:
    """Return how many runs of a conversation are left out unless they are asked for."""
    position = {row.id: index for index, row in enumerate(rows)}
    parents = [position.get(row.parent_run_id, -1) if row.parent_run_id else -1 for row in rows]
    hidden = _find_hidden(parents, [_agent_metadata(row) for row in rows])
    return sum(
        is_hidden and row.run_type in CONTENT_TYPES
        for is_hidden, row in zip(hidden, rows, strict=True)
    )


def find_agents(rows: Sequence[RunRow], *, show_hidden: bool = False) -> list[Agent]:
    """Return the agents of the roots of rows in depth-first order, parents before children.

    The runs of middleware, of compaction, and those that their metadata excludes are left out
    unless `show_hidden`.
    """
    position = {row.id: index for index, row in enumerate(rows)}
    parents = [position.get(row.parent_run_id, -1) if row.parent_run_id else -1 for row in rows]
    metadata = [_agent_metadata(row) for row in rows]
    hidden = [False] * len(rows) if show_hidden else _find_hidden(parents, metadata)
    boundaries = _find_boundaries(rows, parents, metadata)
    failed_parents = {
        parents[index] for index, row in enumerate(rows) if row.error_preview is not None
    }
    roots: list[Agent] = []
    owners: list[Agent] = []
    tool_runs: list[RunRow | None] = []
    for index, row in enumerate(rows):
        parent = parents[index]
        outer = owners[parent] if 0 <= parent < index else None
        tool_run = tool_runs[parent] if outer is not None else None
        if outer is None or boundaries[index]:
            called_by = row if outer is not None and row.run_type == RunType.TOOL else tool_run
            name = str(metadata[index].get("lc_agent_name") or row.shown_name)
            agent = Agent(row, name, called_by.id if called_by else None)
            (roots if outer is None else outer.agents).append(agent)
            owners.append(agent)
            tool_runs.append(None)
            # The tool run that is an agent stays a call of the outer agent.
            content_owner = outer if outer is not None and called_by is row else agent
        else:
            agent = content_owner = outer
            owners.append(agent)
            tool_runs.append(row if row.run_type == RunType.TOOL else tool_run)
        if hidden[index]:
            continue
        if row.run_type in CONTENT_TYPES:
            content_owner.runs.append(row)
            if row.run_type == RunType.RETRIEVER and content_owner is outer and tool_run:
                content_owner.tool_run_ids[row.id] = tool_run.id
        elif row.error_preview is not None and index not in failed_parents:
            agent.failures.append(row)
    return roots


def _agent_metadata(row: RunRow) -> Mapping[str, Any]:
    """Return the metadata if it says something about agents; decoding all would take long."""
    if any(row.metadata_json.find(key) >= 0 for key in _METADATA_KEYS):
        return row.metadata
    return {}


def _find_hidden(parents: Sequence[int], metadata: Sequence[Mapping[str, Any]]) -> list[bool]:
    hidden: list[bool] = []
    for index, values in enumerate(metadata):
        is_excluded = values.get("ls_message_view_exclude") in (True, "true", "True")
        is_hidden_type = values.get("ls_agent_type") in _HIDDEN_AGENT_TYPES
        parent = parents[index]
        hidden.append(is_excluded or is_hidden_type or (0 <= parent < index and hidden[parent]))
    return hidden


def _find_boundaries(
    rows: Sequence[RunRow], parents: Sequence[int], metadata: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """Return for each run whether it begins an agent within another.

    Clients copy metadata to the runs below, so that only a change of it says something. A tool run
    with a model call below is an agent, unless a run between the two is one.
    """
    boundaries: list[bool] = []
    names: list[Any] = []
    tools: list[int] = []
    agent_tools: set[int] = set()
    for index, row in enumerate(rows):
        parent = parents[index]
        is_root = not 0 <= parent < index
        values = metadata[index]
        outer: Mapping[str, Any] = {} if is_root else metadata[parent]
        outer_name = None if is_root else names[parent]
        name = values.get("lc_agent_name") or outer_name
        is_boundary = not is_root and (
            (values.get("ls_agent_type") == _SUBAGENT and outer.get("ls_agent_type") != _SUBAGENT)
            or row.run_type == _AGENT_RUN_TYPE
            or _begins_operation(values, outer)
            or (outer_name is not None and name != outer_name)
        )
        boundaries.append(is_boundary)
        names.append(name)
        tool = -1 if is_root or is_boundary else tools[parent]
        tools.append(index if row.run_type == RunType.TOOL else tool)
        if row.is_model_call and tool >= 0:
            agent_tools.add(tool)
    return [
        is_boundary or (index in agent_tools and parents[index] >= 0)
        for index, is_boundary in enumerate(boundaries)
    ]


def _begins_operation(values: Mapping[str, Any], outer: Mapping[str, Any]) -> bool:
    is_agent = values.get(_OPERATION_KEY) == _AGENT_OPERATION
    return is_agent and outer.get(_OPERATION_KEY) != _AGENT_OPERATION
