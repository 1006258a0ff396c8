"""Invariants that hold after a trial; each violation is a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import NotFoundError

from tests.chaos.load import STEPS, ThreadRecord

FINAL = {"success", "error", "timeout", "interrupted"}


def check_effects(lines: list[str]) -> Iterator[str]:
    """Check that each node ran at most once in each attempt."""
    for line, times in Counter(lines).items():
        if times > 1:
            yield f"{times} effects of one attempt: {line}"


def check_thread(client: SyncLangGraphClient, thread: ThreadRecord) -> Iterator[str]:
    """Check that the runs are final, the history has no branches and the order was kept."""
    thread_id = thread.thread_id
    rows = {row["run_id"]: row for row in client.runs.list(thread_id, limit=1000)}
    for run in thread.runs:
        row = rows.get(run.run_id)
        if row is None and not run.may_be_gone:
            yield f"{thread_id}: run {run.run_id} is lost"
        elif row is not None and row["status"] not in FINAL:
            yield f"{thread_id}: run {run.run_id} is {row['status']}"
    if client.threads.get(thread_id)["status"] == "busy":
        yield f"{thread_id}: is busy without an open run"
    history = client.threads.get_history(thread_id, limit=1000)
    yield from _check_history(thread_id, history[::-1], rows)
    values: Any = history[0]["values"] if history else {}
    yield from _check_trail(thread_id, thread, rows, values)


def _check_history(thread_id: str, states: list[Any], rows: dict[str, Any]) -> Iterator[str]:
    for older, newer in pairwise(states):
        if newer["parent_checkpoint"]["checkpoint_id"] != older["checkpoint"]["checkpoint_id"]:
            yield f"{thread_id}: step {newer['metadata']['step']} does not follow the one before"
    writers = [state["metadata"]["run_id"] for state in states]
    blocks = [run_id for run_id, _ in groupby(writers)]
    if len(blocks) != len(set(blocks)):
        yield f"{thread_id}: runs wrote in turns: {blocks}"
    # Ids follow the order in which runs are received.
    existing = [run_id for run_id in blocks if run_id in rows]
    if existing != sorted(existing, key=lambda run_id: rows[run_id]["created_at"]):
        yield f"{thread_id}: runs wrote out of order: {existing}"
    attempts: dict[str, list[int]] = defaultdict(list)
    for state in states:
        attempts[state["metadata"]["run_id"]].append(state["metadata"]["run_attempt"])
    for run_id, attempt_numbers in attempts.items():
        if attempt_numbers != sorted(attempt_numbers):
            yield f"{thread_id}: a stale attempt of {run_id} wrote: {attempt_numbers}"


def _check_trail(
    thread_id: str, thread: ThreadRecord, rows: dict[str, Any], values: dict[str, Any]
) -> Iterator[str]:
    trail = [step.split("/") for step in values.get("trail") or ()]
    marks = [mark for mark, _ in groupby(trail, key=lambda step: step[0])]
    order = list(dict.fromkeys(run.mark for run in thread.runs))
    present = [mark for mark in marks if mark in order]
    if present != [mark for mark in order if mark in present]:
        yield f"{thread_id}: the trail {marks} is out of the order {order}"
    statuses: dict[str, str] = {}
    for run in thread.runs:
        if run.run_id in rows and not run.asks:
            statuses[run.mark] = rows[run.run_id]["status"]
    for mark, status in statuses.items():
        steps = [step for step in (s[1] for s in trail if s[0] == mark) if step.isdigit()]
        all_steps = [str(number) for number in range(1, STEPS + 1)]
        if steps != all_steps[: len(steps)] or (status == "success" and steps != all_steps):
            yield f"{thread_id}: run {mark} is {status} with the steps {steps}"


def is_idle(client: SyncLangGraphClient, thread: ThreadRecord) -> bool:
    """Whether the thread has no open run."""
    try:
        runs = client.runs.list(thread.thread_id, limit=1000)
    except NotFoundError:
        return True
    return all(run["status"] in FINAL for run in runs)
