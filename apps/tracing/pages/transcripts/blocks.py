"""What a transcript shows: the blocks of an agent, with tool calls and agents within it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from apps.core.json import loads
from apps.trace_store import RunRow
from apps.tracing.messages import Document, Message, ToolCall
from apps.tracing.pages.error_reports import ErrorReport
from apps.tracing.pages.payload_views import PayloadView
from apps.tracing.pages.transcripts.agents import Agent

MAX_FLAT_ARGUMENTS = 6
MAX_OPEN_PARALLEL_CALLS = 3


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
