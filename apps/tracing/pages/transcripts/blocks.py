"""Builds the blocks of an agent: its turns with their tool calls, retrievals, agents within it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.trace_store import Payload, RunDetail, RunRow, RunType
from apps.tracing.messages import (
    Conversation,
    Document,
    Message,
    MessagePart,
    ToolCall,
    parse_conversation,
    parse_documents,
)
from apps.tracing.pages.error_reports import ErrorReport, build_error
from apps.tracing.pages.payload_views import PayloadView, build_turn_payload_view
from apps.tracing.pages.transcripts.agents import Agent

MAX_PARSED_BYTES = 2_000_000
"""A larger payload is shown by its preview."""
MAX_TEXT = 20_000
"""The characters of a text that a transcript shows; the run has them all."""
MAX_FLAT_ARGUMENTS = 6
MAX_OPEN_PARALLEL_CALLS = 3
MAX_AGENT_DEPTH = 12
"""Agents within agents that a page nests; deeper ones are shown as runs only."""
_PATH_ARROW = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_WAIT = timedelta(seconds=1)
_WAIT_SHARE = 0.05


@dataclass(frozen=True)
class Figures:
    """What a run took: shown in the margin of its block."""

    latency: timedelta | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: Any
    first_token: timedelta | None
    share: int
    """Percent of the trace's duration."""


@dataclass(frozen=True)
class CallView:
    """A tool call with its run, its result, and what it called: agents and retrievals."""

    call: ToolCall
    run: RunRow | None
    figures: Figures | None
    error: ErrorReport | None = None
    agents: Sequence[AgentView] = ()
    retrievals: Sequence[Block] = ()

    @property
    def errors(self) -> list[ErrorReport]:
        """Return the errors of the call and of its retrievals."""
        errors = [self.error, *(block.error for block in self.retrievals)]
        return [error for error in errors if error is not None]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Return the arguments as names and values if they are few and flat."""
        try:
            values = loads(self.call.arguments)
        except ValueError:
            return []
        if not isinstance(values, dict) or not 0 < len(values) <= MAX_FLAT_ARGUMENTS:
            return []
        if any(isinstance(value, dict | list) for value in values.values()):
            return []
        return [
            (name, value if isinstance(value, str) else self._scalar(value))
            for name, value in values.items()
        ]

    @staticmethod
    def _scalar(value: Any) -> str:
        return {True: "true", False: "false", None: "null"}.get(value, str(value))

    @property
    def status(self) -> str:
        if self.call.failed:
            return "error"
        if self.run is not None:
            return self.run.shown_status
        return "success" if self.call.result else ""


@dataclass(frozen=True)
class CallGroup:
    """Calls that overlap in time, or a single one."""

    calls: Sequence[CallView]
    duration: timedelta | None = None

    @property
    def is_parallel(self) -> bool:
        return len(self.calls) > 1

    @property
    def is_folded(self) -> bool:
        return len(self.calls) > MAX_OPEN_PARALLEL_CALLS

    @property
    def names(self) -> str:
        counts = Counter(call.call.name for call in self.calls)
        return ", ".join(
            f"{name} \N{MULTIPLICATION SIGN}{count}" if count > 1 else name
            for name, count in counts.items()
        )


@dataclass(frozen=True)
class Block:
    """A part of a transcript.

    Its kind is `input`, `turn`, `retrieval`, `tool`, `agent`, `error`, `state` or `output`.
    """

    kind: str
    row: RunRow
    title: str = ""
    system: Sequence[Message] = ()
    messages: Sequence[Message] = ()
    """New messages of the input."""
    reply: Sequence[Message] = ()
    context: int = 0
    """Messages of the input that earlier blocks show."""
    replaced: tuple[int, int] | None = None
    """The lengths of a history that became shorter."""
    calls: Sequence[CallGroup] = ()
    documents: Sequence[Document] = ()
    state: Sequence[tuple[str, str]] = ()
    """Keys of the state that changed and hold no messages, with their values as JSON."""
    view: PayloadView | None = None
    """The payload if it has no messages."""
    preview: str = ""
    error: ErrorReport | None = None
    agent: AgentView | None = None
    figures: Figures | None = None
    attempt: int = 1
    wait: timedelta | None = None
    """Time before the block in which no call of the agent ran."""

    feedback: Sequence[tuple[str, str]] = ()
    """Key and short value of each feedback of the run."""

    @property
    def has_error(self) -> bool:
        return self.error is not None and not self.error.is_interrupt

    @property
    def call_errors(self) -> list[ErrorReport]:
        """Return the errors of the block's own tool calls."""
        return [error for group in self.calls for call in group.calls for error in call.errors]


@dataclass(frozen=True)
class AgentView:
    """An agent within another: its card, and its blocks."""

    agent: Agent
    figures: Figures
    blocks: Sequence[Block]
    path: str
    """The names of the agents from the outermost, with arrows between."""

    @property
    def has_error(self) -> bool:
        return any(
            block.has_error
            or (block.agent is not None and block.agent.has_error)
            or any(
                call.errors or any(view.has_error for view in call.agents)
                for group in block.calls
                for call in group.calls
            )
            for block in self.blocks
        )


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
        results = _collect_results(inputs.values())
        tools = _ToolRuns(
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
        views = [self._call_view(call, run, results, agents_by_tool, path) for call, run in pairs]
        groups: list[list[CallView]] = []
        for view in views:
            if groups and view.run is not None and _overlaps(view.run, groups[-1]):
                groups[-1].append(view)
            else:
                groups.append([view])
        return [CallGroup(group, _span([view.run for view in group])) for group in groups]

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
        call = replace(call, result=_cut_parts(call.result), arguments=_cut_text(call.arguments))
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


class _ToolRuns:
    """The tool runs of an agent that no call was matched with yet."""

    def __init__(self, runs: Sequence[RunRow], call_ids: Mapping[UUID, str]) -> None:
        self._by_call_id = {call_ids[run.id]: run for run in runs if run.id in call_ids}
        self._by_name: dict[str, deque[RunRow]] = defaultdict(deque)
        for run in sorted(runs, key=lambda run: run.start_time):
            if run.id not in call_ids:
                self._by_name[run.name].append(run)

    def take(self, call: ToolCall, model_run: RunRow) -> RunRow | None:
        """Return the run of the call: by its id, else the next of its name after the model."""
        if call.id and (run := self._by_call_id.pop(call.id, None)) is not None:
            return run
        queue = self._by_name[call.name]
        if queue and queue[0].start_time >= model_run.start_time:
            return queue.popleft()
        return None


def _collect_results(conversations: Iterable[Conversation]) -> dict[Any, ToolCall]:
    """Return the calls with results in later inputs, by id, or by name and arguments."""
    results: dict[Any, ToolCall] = {}
    for conversation in conversations:
        for message in conversation.messages:
            for call in message.tool_calls:
                if call.result:
                    results.setdefault(call.id or (call.name, call.arguments), call)
            if message.tool_call_id:
                answer = ToolCall(message.name, "", "", message.parts, message.failed)
                results.setdefault(message.tool_call_id, answer)
    return results


def message_key(message: Message) -> Any:
    """Return what copies of one message have in common: clients drop thinking, for example."""
    ids = tuple(call.id or (call.name, call.arguments) for call in message.tool_calls)
    if ids:
        return message.role, ids
    text = message.text
    return (message.role, text) if text else message.identity


def _without_calls(message: Message) -> Message:
    return replace(message, tool_calls=())


def cut_messages(messages: Sequence[Message]) -> list[Message]:
    """Cut long texts and leave out messages that say nothing."""
    return [
        replace(message, parts=_cut_parts(message.parts))
        for message in messages
        if not message.is_empty
    ]


def _cut_parts(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    return tuple(
        part if part.is_medium else replace(part, text=_cut_text(part.text)) for part in parts
    )


def _cut_text(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT:,} more characters in the run"


def _overlaps(run: RunRow, group: Sequence[CallView]) -> bool:
    return any(
        view.run is not None
        and view.run.start_time < (run.end_time or run.start_time)
        and run.start_time < (view.run.end_time or run.start_time)
        for view in group
    )


def _span(runs: Sequence[RunRow | None]) -> timedelta | None:
    present = [run for run in runs if run is not None]
    ends = [run.end_time for run in present if run.end_time is not None]
    if not ends:
        return None
    return max(ends) - min(run.start_time for run in present)


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
