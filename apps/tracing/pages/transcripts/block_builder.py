"""Builds the blocks of an agent: its turns with their tool calls, retrievals, agents within it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from apps.trace_store import Payload, RunDetail, RunRow, RunType
from apps.tracing.messages import (
    Conversation,
    Message,
    MessagePart,
    ToolCall,
    parse_conversation,
    parse_documents,
)
from apps.tracing.pages.error_reports import ErrorReport, build_error
from apps.tracing.pages.payload_views import build_turn_payload_view
from apps.tracing.pages.transcripts.agents import Agent
from apps.tracing.pages.transcripts.blocks import AgentView, Block, CallGroup, CallView, Figures
from apps.tracing.pages.transcripts.shown_messages import (
    cut_messages,
    cut_parts,
    cut_text,
    message_key,
)
from apps.tracing.pages.transcripts.tool_calls import ToolRuns, collect_results, group_calls

MAX_PARSED_BYTES = 2_000_000
"""A larger payload is shown by its preview."""
MAX_AGENT_DEPTH = 12
"""Agents within agents that a page nests; deeper ones are shown as runs only."""
_PATH_ARROW = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_WAIT = timedelta(seconds=1)
_WAIT_SHARE = 0.05


@dataclass
class TranscriptBuilder:
    """Builds the blocks of a page from the runs' payloads; keeps which messages were shown."""

    details: Mapping[UUID, RunDetail]
    duration: timedelta
    shown_ids: frozenset[UUID]
    """The runs of the page; runs of earlier pages only tell which messages were shown."""
    feedback: Mapping[UUID, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Key and short value of the feedback by run."""
    _retrievals: dict[UUID, list[Block]] = field(default_factory=lambda: defaultdict(list))
    """The retrievals within each tool run whose call is shown."""
    _seen: dict[UUID, Counter[Any]] = field(default_factory=lambda: defaultdict(Counter))
    _lengths: dict[UUID, int] = field(default_factory=dict)

    def build_agent(self, agent: Agent, path: str) -> AgentView:
        is_nested_too_deeply = path.count(_PATH_ARROW) > MAX_AGENT_DEPTH
        blocks = [] if is_nested_too_deeply else self.build_blocks(agent, path)
        return AgentView(agent, self._figures(agent.row), blocks, path)

    def seen_counts(self, agent: Agent) -> Counter[Any]:
        """Return how often each message was shown among those of the agent."""
        return self._seen[agent.row.id]

    def take_new(self, agent: Agent, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that no block of the agent shows yet, and record them as shown."""
        return cut_messages(self._take_new(agent, messages))

    def _take_new(self, agent: Agent, messages: Sequence[Message]) -> list[Message]:
        seen = self.seen_counts(agent)
        counts: Counter[Any] = Counter()
        new: list[Message] = []
        for message in messages:
            key = message_key(message)
            counts[key] += 1
            if counts[key] > seen[key]:
                new.append(message)
        for key, count in counts.items():
            seen[key] = max(seen[key], count)
        return new

    def build_blocks(self, agent: Agent, path: str) -> list[Block]:
        """Build the blocks of the agent's runs on the page, in order of their start."""
        runs = [run for run in agent.runs if run.id in self.details]
        inputs = {
            run.id: self._conversation(run, Payload.INPUTS) for run in runs if run.is_model_call
        }
        replies = {
            run.id: self._conversation(run, Payload.OUTPUTS) for run in runs if run.is_model_call
        }
        results = collect_results(inputs.values())
        tools = ToolRuns(
            [run for run in runs if run.run_type == RunType.TOOL], self._recorded_call_ids(runs)
        )
        assigned = {
            run.id: [
                (call, tools.take(call, run))
                for message in replies[run.id].messages
                for call in message.tool_calls
            ]
            for run in sorted(runs, key=lambda run: run.start_time)
            if run.is_model_call
        }
        agents_by_tool: dict[UUID, list[Agent]] = defaultdict(list)
        for inner in agent.agents:
            if inner.tool_run_id is not None:
                agents_by_tool[inner.tool_run_id].append(inner)
        callers = {run.id: caller for caller, pairs in assigned.items() for _, run in pairs if run}
        placed_ids = self._place_retrievals(agent, runs, callers)
        events: list[tuple[RunRow, Agent | None]] = [
            (run, None)
            for run in [*runs, *self._failures(agent)]
            if run.id not in callers and run.id not in placed_ids
        ]
        shown_tools = {run.id for run in runs if run.run_type == RunType.TOOL}
        events += [
            (inner.row, inner) for inner in agent.agents if inner.tool_run_id not in shown_tools
        ]
        blocks: list[Block] = []
        for row, inner_agent in sorted(events, key=lambda event: event[0].start_time):
            if inner_agent is not None:
                block = self._agent_block(inner_agent, path)
            elif row.is_model_call:
                turn = self._turn(agent, row, inputs[row.id], replies[row.id])
                groups = self._call_groups(assigned[row.id], results, agents_by_tool, path)
                block = replace(turn, calls=groups)
            else:
                block = self._other_block(row, agents_by_tool, path)
            is_shown = row.id in self.shown_ids or inner_agent is not None
            if is_shown:
                blocks.append(replace(block, feedback=self.feedback.get(row.id, ())))
        return self._with_waits(_with_attempts(blocks), agent.row)

    def _place_retrievals(
        self, agent: Agent, runs: Sequence[RunRow], callers: Mapping[UUID, UUID]
    ) -> set[UUID]:
        """Keep the retrievals within tool runs for their calls; return the ids of their runs.

        `callers` has the model run of each called tool run. A call that is shown on another page
        leaves its retrieval a block of its own.
        """
        tool_ids = {run.id for run in runs if run.run_type == RunType.TOOL}
        placed: set[UUID] = set()
        for row in sorted(runs, key=lambda run: run.start_time):
            tool_id = agent.tool_run_ids.get(row.id)
            if tool_id is None or tool_id not in tool_ids:
                continue
            if callers.get(tool_id, tool_id) in self.shown_ids:
                block = self._retrieval_block(row)
                feedback = self.feedback.get(row.id, ())
                self._retrievals[tool_id].append(replace(block, feedback=feedback))
                placed.add(row.id)
        return placed

    def _failures(self, agent: Agent) -> list[RunRow]:
        return [row for row in agent.failures if row.id in self.details]

    def _conversation(self, run: RunRow, payload: Payload) -> Conversation:
        detail = self.details[run.id]
        if len(detail.json(payload) or b"") > MAX_PARSED_BYTES:
            return Conversation()
        return parse_conversation(detail.value(payload))

    def _recorded_call_ids(self, runs: Sequence[RunRow]) -> dict[UUID, str]:
        """Return the ids of the calls whose results the tool runs recorded."""
        ids: dict[UUID, str] = {}
        for run in runs:
            if run.run_type != RunType.TOOL:
                continue
            for message in self._conversation(run, Payload.OUTPUTS).messages:
                if message.tool_call_id:
                    ids[run.id] = message.tool_call_id
        return ids

    def _turn(self, agent: Agent, row: RunRow, inputs: Conversation, reply: Conversation) -> Block:
        new = self._take_new(agent, inputs.messages)
        length, previous = len(inputs.messages), self._lengths.get(agent.row.id, 0)
        self._lengths[agent.row.id] = length
        self.seen_counts(agent).update(map(message_key, reply.messages))
        outputs = self.details[row.id]
        view = None
        if not reply.messages and row.error_preview is None:
            view = build_turn_payload_view(outputs, Payload.OUTPUTS)
        return Block(
            "turn",
            row,
            title=row.model or row.name,
            system=cut_messages([message for message in new if message.role == "system"]),
            messages=cut_messages([message for message in new if message.role != "system"]),
            reply=cut_messages([_without_calls(message) for message in reply.messages]),
            context=length - len(new),
            replaced=(previous, length) if 0 < length < previous else None,
            view=None if view is None or view.is_empty else view,
            preview="" if inputs.messages else row.inputs_preview or "",
            error=self._error(row),
            figures=self._figures(row),
        )

    def _call_groups(
        self,
        pairs: Sequence[tuple[ToolCall, RunRow | None]],
        results: Mapping[Any, ToolCall],
        agents_by_tool: Mapping[UUID, Sequence[Agent]],
        path: str,
    ) -> list[CallGroup]:
        return group_calls(
            self._call_view(call, run, results, agents_by_tool, path) for call, run in pairs
        )

    def _call_view(
        self,
        call: ToolCall,
        run: RunRow | None,
        results: Mapping[Any, ToolCall],
        agents_by_tool: Mapping[UUID, Sequence[Agent]],
        path: str,
    ) -> CallView:
        recorded = results.get(call.id) if call.id else results.get((call.name, call.arguments))
        if not call.result and recorded is not None:
            call = replace(call, result=recorded.result, failed=recorded.failed)
        if not call.result and run is not None:
            call = replace(call, result=self._tool_output(run))
        call = replace(call, result=cut_parts(call.result), arguments=cut_text(call.arguments))
        if run is None:
            return CallView(call, None, None)
        inner = [
            self.build_agent(agent, f"{path}{_PATH_ARROW}{agent.name}")
            for agent in agents_by_tool.get(run.id, ())
        ]
        retrievals = self._retrievals.get(run.id, ())
        return CallView(call, run, self._figures(run), self._error(run), inner, retrievals)

    def _tool_output(self, run: RunRow) -> tuple[MessagePart, ...]:
        """Return the output of a tool run: its message, its text, or its JSON."""
        conversation = self._conversation(run, Payload.OUTPUTS)
        if conversation.messages:
            return tuple(part for message in conversation.messages for part in message.parts)
        view = build_turn_payload_view(self.details[run.id], Payload.OUTPUTS)
        if view.is_empty:
            return ()
        if view.text is not None:
            return (MessagePart("text", view.text),)
        return (MessagePart("json", view.beginning),)

    def _other_block(
        self, row: RunRow, agents_by_tool: Mapping[UUID, Sequence[Agent]], path: str
    ) -> Block:
        if row.run_type == RunType.RETRIEVER:
            return self._retrieval_block(row)
        if row.run_type == RunType.TOOL:
            call = ToolCall(row.name, row.inputs_preview or "", result=self._tool_output(row))
            view = self._call_view(call, row, {}, agents_by_tool, path)
            group = CallGroup([view])
            return Block("tool", row, title=row.name, calls=[group], figures=self._figures(row))
        return Block("error", row, title=row.name, error=self._error(row))

    def _retrieval_block(self, row: RunRow) -> Block:
        detail = self.details[row.id]
        output = detail.json(Payload.OUTPUTS) or b""
        is_parsed = len(output) <= MAX_PARSED_BYTES
        return Block(
            "retrieval",
            row,
            title=row.name,
            documents=parse_documents(detail.value(Payload.OUTPUTS)) if is_parsed else [],
            preview=row.inputs_preview or "",
            error=self._error(row),
            figures=self._figures(row),
        )

    def _agent_block(self, agent: Agent, path: str) -> Block:
        view = self.build_agent(agent, f"{path}{_PATH_ARROW}{agent.name}")
        return Block("agent", agent.row, title=agent.name, agent=view, figures=view.figures)

    def _error(self, row: RunRow) -> ErrorReport | None:
        if row.error_preview is None:
            return None
        detail = self.details.get(row.id)
        value = detail.value(Payload.ERROR) if detail is not None else None
        return build_error(value if isinstance(value, str) else row.error_preview)

    def _figures(self, row: RunRow) -> Figures:
        latency, token = row.latency, row.first_token_time
        share = 0
        if latency is not None and self.duration:
            share = min(100, max(0, round(100 * (latency / self.duration))))
        return Figures(
            latency,
            row.usage.prompt_tokens,
            row.usage.completion_tokens,
            row.usage.total_cost,
            None if token is None else token - row.start_time,
            share,
        )

    def _with_waits(self, blocks: Iterable[Block], owner: RunRow) -> list[Block]:
        """Mark the blocks before which the agent waited outside of recorded calls."""
        result: list[Block] = []
        end = owner.start_time
        for block in blocks:
            wait = block.row.start_time - end
            is_long = wait > _WAIT and wait > self.duration * _WAIT_SHARE
            is_marked = is_long and block.kind != "error"
            result.append(replace(block, wait=wait) if is_marked else block)
            ends = [
                block.row.end_time,
                *(call.run.end_time for group in block.calls for call in group.calls if call.run),
            ]
            end = max([end, *filter(None, ends)])
        return result


def _without_calls(message: Message) -> Message:
    return replace(message, tool_calls=())


def _with_attempts(blocks: Iterable[Block]) -> Iterator[Block]:
    """Number the model calls that repeat one that failed."""
    previous: Block | None = None
    for block in blocks:
        is_retry = (
            previous is not None
            and previous.has_error
            and previous.kind == block.kind
            and previous.row.name == block.row.name
        )
        attempt = previous.attempt + 1 if is_retry and previous is not None else 1
        previous = replace(block, attempt=attempt)
        yield previous
