"""Matches the tool calls of a model with the tool runs and the results that they led to."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from apps.trace_store import RunRow
from apps.tracing.messages import Conversation, ToolCall
from apps.tracing.pages.transcripts.blocks import CallGroup, CallView


class ToolRuns:
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


def collect_results(conversations: Iterable[Conversation]) -> dict[Any, ToolCall]:
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


def group_calls(views: Iterable[CallView]) -> list[CallGroup]:
    """Return the calls in groups of those that overlap in time."""
    groups: list[list[CallView]] = []
    for view in views:
        if groups and view.run is not None and _overlaps(view.run, groups[-1]):
            groups[-1].append(view)
        else:
            groups.append([view])
    return [CallGroup(group, _span([view.run for view in group])) for group in groups]


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
