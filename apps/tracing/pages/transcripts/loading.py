"""Loads transcripts: of a trace by pages of its runs, and of the turns of a thread."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.core.json import dumps_text
from apps.feedback.services import score_stats
from apps.trace_store import (
    Payload,
    RunDetail,
    RunQuery,
    RunRow,
    RunType,
    Status,
    filters,
    run_store,
)
from apps.tracing.messages import Message, MessagePart
from apps.tracing.models import Project
from apps.tracing.pages.error_reports import build_error
from apps.tracing.pages.payload_views import build_turn_payload_view
from apps.tracing.pages.run_feedback import feedback_chips
from apps.tracing.pages.threads import load_turns
from apps.tracing.pages.transcripts.agents import (
    CONTENT_TYPES,
    Agent,
    count_hidden,
    find_agents,
)
from apps.tracing.pages.transcripts.block_builder import MAX_PARSED_BYTES, TranscriptBuilder
from apps.tracing.pages.transcripts.blocks import Block
from apps.tracing.pages.transcripts.shown_messages import cut_messages, message_key

RUNS_PER_PAGE = 200
"""The model, tool and retriever runs of one page of a transcript."""
TURNS_PER_PAGE = 10
MAX_THREAD_RUNS = 2_000
MAX_STATE_KEYS = 50
MAX_STATE_VALUE = 2_000
"""The characters of a value of the state; the run has them all."""
_MAX_FAILURES = 20
_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR)
_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class Transcript:
    """A page of a trace as a conversation."""

    root: RunRow
    name: str
    blocks: Sequence[Block]
    duration: timedelta
    model_calls: int
    tool_calls: int
    errors: int
    next_offset: int | None = None
    first_error: UUID | None = None
    """The deepest run that failed by itself."""
    hidden_runs: int = 0
    """The runs of middleware and those that their metadata excludes."""
    root_feedback: Sequence[tuple[str, str]] = ()
    """Key and short value of the feedback on the root that no block shows."""

    @property
    def is_running(self) -> bool:
        return self.root.shown_status == Status.PENDING

    @property
    def tokens(self) -> int:
        return self.root.total_tokens or 0

    @property
    def cost(self) -> Decimal | None:
        return self.root.usage.total_cost


@dataclass(frozen=True)
class TurnTranscript:
    """A turn of a thread: its number on the page and its transcript."""

    number: int
    row: RunRow
    transcript: Transcript
    is_cut: bool
    """Whether the turn has more runs than a page of turns reads."""


def load_transcript(
    workspace_id: UUID,
    query: RunQuery,
    rows: Sequence[RunRow],
    *,
    offset: int = 0,
    show_hidden: bool = False,
    with_feedback: bool = False,
) -> Transcript | None:
    """Load the page of a trace that starts at the run number `offset` in order of starts.

    `rows` are all runs of the trace, depth first; `query` restricts the read of payloads to what
    the caller may see. `show_hidden` includes the runs of middleware and those that their metadata
    excludes. None without rows.
    """
    agents = find_agents(rows, show_hidden=show_hidden)
    if not agents:
        return None
    content = _content_runs(agents)
    page = content[offset : offset + RUNS_PER_PAGE]
    next_offset = offset + RUNS_PER_PAGE if offset + RUNS_PER_PAGE < len(content) else None
    earlier = _last_model_runs(agents, content[:offset])
    failures = [row for agent in agents for inner in agent.walk() for row in inner.failures]
    roots = [agent.row for agent in agents[:RUNS_PER_PAGE]]
    ids = {row.id for row in [*roots, *page, *earlier, *failures[:_MAX_FAILURES]]}
    details = _read_details(workspace_id, query, ids)
    shown = frozenset(row.id for row in [*page, *failures])
    return _build(
        agents,
        rows,
        details,
        shown,
        is_first=offset == 0,
        next_offset=next_offset,
        feedback=_load_feedback(workspace_id, ids) if with_feedback else {},
    )


def _load_feedback(
    workspace_id: UUID, ids: Collection[UUID]
) -> Mapping[UUID, Sequence[tuple[str, str]]]:
    scores = score_stats.by_run(workspace_id, list(ids))
    return {run_id: feedback_chips(stats) for run_id, stats in scores.items()}


def load_turn_transcripts(
    project: Project, key: str, *, cursor: str = ""
) -> tuple[list[TurnTranscript], str | None]:
    """Load a page of a thread's turns as transcripts, and the cursor of the next page."""
    page = load_turns(project, key, cursor=cursor, limit=TURNS_PER_PAGE)
    turns = [detail.row for detail in page.runs]
    if not turns:
        return [], None
    traces = ", ".join(filters.quote(str(turn.trace_id)) for turn in turns)
    query = RunQuery(
        project_ids=[project.pk],
        started_from=min(turn.start_time for turn in turns) - _CLOCK_SKEW,
        where=filters.parse(f"in(trace_id, [{traces}])"),
        oldest_first=True,
    )
    runs = run_store.query(project.workspace_id, query, limit=MAX_THREAD_RUNS).runs
    by_trace: dict[UUID, list[RunRow]] = defaultdict(list)
    for run in runs:
        by_trace[run.row.trace_id].append(run.row)
    agents_by_turn: list[tuple[RunRow, list[RunRow], list[Agent]]] = []
    wanted: list[RunRow] = []
    for turn in turns:
        rows = sorted(by_trace[turn.trace_id], key=lambda row: row.dotted_order) or [turn]
        agents = find_agents(rows)
        agents_by_turn.append((turn, rows, agents))
        wanted += _content_runs(agents)
    read = wanted[:RUNS_PER_PAGE]
    details = _read_details(
        project.workspace_id, query, {row.id for row in read} | {turn.id for turn in turns}
    )
    shown = frozenset(row.id for row in read)
    earlier: Counter[Any] = Counter()
    transcripts = []
    for number, (turn, rows, agents) in enumerate(agents_by_turn, 1):
        transcript = _build(agents, rows, details, shown, is_first=True, earlier=earlier)
        is_cut = not all(run.id in shown for run in _content_runs(agents))
        transcripts.append(TurnTranscript(number, turn, transcript, is_cut))
    return transcripts, page.next_cursor


def _content_runs(agents: Sequence[Agent]) -> list[RunRow]:
    runs = [run for agent in agents for inner in agent.walk() for run in inner.runs]
    return sorted(runs, key=lambda run: (run.start_time, run.dotted_order))


def _last_model_runs(agents: Sequence[Agent], earlier: Sequence[RunRow]) -> list[RunRow]:
    """Return the last model run of each agent on earlier pages, whose messages were shown."""
    ids = {row.id for row in earlier}
    last = []
    for agent in agents:
        for inner in agent.walk():
            runs = [run for run in inner.runs if run.id in ids and run.is_model_call]
            last += runs[-1:]
    return last


def _read_details(
    workspace_id: UUID, query: RunQuery, ids: Collection[UUID]
) -> Mapping[UUID, RunDetail]:
    query = replace(query, run_ids=sorted(ids))
    page = run_store.query(workspace_id, query, limit=len(ids), payloads=_PAYLOADS)
    return {detail.row.id: detail for detail in page.runs}


def _build(
    agents: Sequence[Agent],
    rows: Sequence[RunRow],
    details: Mapping[UUID, RunDetail],
    shown: frozenset[UUID],
    *,
    is_first: bool,
    next_offset: int | None = None,
    earlier: Counter[Any] | None = None,
    feedback: Mapping[UUID, Sequence[tuple[str, str]]] | None = None,
) -> Transcript:
    root = agents[0]
    begin = min(row.start_time for row in rows)
    duration = max((row.end_time or row.start_time) for row in rows) - begin
    builder = TranscriptBuilder(details, duration, shown, feedback or {})
    blocks: list[Block] = []
    seen = builder.seen_counts(root)
    if earlier is not None:
        seen.update(earlier)
    for agent in agents:
        blocks += _root_blocks(builder, agent, shown, is_first=is_first)
    if earlier is not None:
        earlier.clear()
        earlier.update(seen)
    failed_parents = {row.parent_run_id for row in rows if row.has_failed}
    failures = [row for row in rows if row.has_failed and row.id not in failed_parents]
    deepest = max(failures, key=lambda row: row.depth, default=None)
    return Transcript(
        root.row,
        root.name,
        blocks,
        duration,
        model_calls=sum(row.is_model_call for row in rows),
        tool_calls=sum(row.run_type == RunType.TOOL for row in rows),
        errors=len(failures),
        next_offset=next_offset,
        hidden_runs=count_hidden(rows),
        first_error=None if deepest is None else deepest.id,
        root_feedback=_root_feedback(builder, root.row, blocks),
    )


def _root_feedback(
    builder: TranscriptBuilder, root: RunRow, blocks: Sequence[Block]
) -> Sequence[tuple[str, str]]:
    is_shown = any(block.row.id == root.id and block.feedback for block in blocks)
    return () if is_shown else builder.feedback.get(root.id, ())


def _root_blocks(
    builder: TranscriptBuilder, root: Agent, shown: frozenset[UUID], *, is_first: bool
) -> list[Block]:
    """Return the root's blocks: its input and output on the pages of its first and last run."""
    if root.row.run_type in CONTENT_TYPES:
        return builder.build_blocks(root, root.name)
    content = _content_runs([root])
    is_begin = content[0].id in shown if content else is_first
    is_end = content[-1].id in shown if content else is_first
    first = _payload_block(builder, root, Payload.INPUTS) if is_begin else None
    blocks = [*([first] if first else []), *builder.build_blocks(root, root.name)]
    return [*blocks, *(_last_blocks(builder, root, blocks) if is_end else [])]


def _last_blocks(builder: TranscriptBuilder, root: Agent, blocks: Sequence[Block]) -> list[Block]:
    if root.row.error_preview is None:
        state = _state_block(builder, root)
        output = _payload_block(builder, root, Payload.OUTPUTS, blocks)
        feedback = builder.feedback.get(root.row.id, ())
        present = [block for block in (state, output) if block is not None]
        return [*present[:-1], *(replace(block, feedback=feedback) for block in present[-1:])]
    # The error of a run below is in its own block or call.
    if root.row in root.failures or any(block.has_error for block in blocks):
        return []
    error = build_error(_error_text(builder, root))
    if any(error.title == shown.title for block in blocks for shown in block.call_errors):
        return []
    return [Block("error", root.row, title=root.name, error=error)]


def _state_block(builder: TranscriptBuilder, root: Agent) -> Block | None:
    """Return the keys of the root's final state that its input had not, without messages."""
    detail = builder.details.get(root.row.id)
    if detail is None:
        return None
    sizes = [len(detail.json(payload) or b"") for payload in (Payload.INPUTS, Payload.OUTPUTS)]
    if max(sizes) > MAX_PARSED_BYTES:
        return None
    before, after = detail.value(Payload.INPUTS), detail.value(Payload.OUTPUTS)
    if not isinstance(after, dict) or "messages" not in after:
        return None
    before = before if isinstance(before, dict) else {}
    changed = [
        (key, dumps_text(value)[:MAX_STATE_VALUE])
        for key, value in after.items()
        if key != "messages" and before.get(key) != value
    ]
    return Block("state", root.row, state=changed[:MAX_STATE_KEYS]) if changed else None


def _error_text(builder: TranscriptBuilder, root: Agent) -> str:
    detail = builder.details.get(root.row.id)
    value = detail.value(Payload.ERROR) if detail is not None else None
    return value if isinstance(value, str) else root.row.error_preview or ""


def _payload_block(
    builder: TranscriptBuilder, root: Agent, payload: Payload, blocks: Sequence[Block] = ()
) -> Block | None:
    """Return the block of the root's input or output; no output that `blocks` show.

    An input shows at least its last message: people say the same twice.
    """
    detail = builder.details.get(root.row.id)
    if detail is None:
        return None
    kind = "input" if payload is Payload.INPUTS else "output"
    view = build_turn_payload_view(detail, payload)
    if view.is_empty:
        return None
    messages: Sequence[Message] = view.messages
    if not messages and view.text is not None:
        role = "human" if kind == "input" else "ai"
        messages = [Message(role, (MessagePart("text", view.text),))]
    new = builder.take_new(root, messages)
    if messages and not new:
        shown = {message_key(m) for block in blocks for m in (*block.messages, *block.reply)}
        last = messages[-1]
        # A reply of calls alone stands as the calls of its turn.
        is_calls_only = bool(last.tool_calls) and not last.parts
        if message_key(last) in shown or (is_calls_only and any(block.calls for block in blocks)):
            return None
        new = cut_messages(messages[-1:])
    if not view.messages:
        return Block(kind, root.row, view=view)
    system = [message for message in new if message.role == "system"]
    others = [message for message in new if message.role != "system"]
    return Block(kind, root.row, system=system, messages=others)
