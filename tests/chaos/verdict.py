"""What must hold when everything has calmed down; each violation is a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import NotFoundError

from tests.chaos.load import STEPS, Line

FINAL = {"success", "error", "timeout", "interrupted"}


def of_effects(lines: list[str]) -> Iterator[str]:
    """Each node acted at most once in each attempt."""
    for line, times in Counter(lines).items():
        if times > 1:
            yield f"{times} effects of one attempt: {line}"


def of_line(client: SyncLangGraphClient, line: Line) -> Iterator[str]:
    """A thread: its runs are final, its history is one line, its order kept."""
    place = line.thread_id
    rows = {run["run_id"]: run for run in client.runs.list(place, limit=1000)}
    for made in line.runs:
        run = rows.get(made.run_id)
        if run is None and not made.may_be_gone:
            yield f"{place}: run {made.run_id} is lost"
        elif run is not None and run["status"] not in FINAL:
            yield f"{place}: run {made.run_id} is {run['status']}"
    if client.threads.get(place)["status"] == "busy":
        yield f"{place}: is busy with nothing"
    history = client.threads.get_history(place, limit=1000)
    yield from _of_history(place, history[::-1], rows)
    values: Any = history[0]["values"] if history else {}
    yield from _of_trail(place, line, rows, values)


def _of_history(place: str, states: list[Any], rows: dict[str, Any]) -> Iterator[str]:
    for older, newer in pairwise(states):
        if newer["parent_checkpoint"]["checkpoint_id"] != older["checkpoint"]["checkpoint_id"]:
            yield f"{place}: step {newer['metadata']['step']} does not follow the one before"
    writers = [state["metadata"]["run_id"] for state in states]
    blocks = [run_id for run_id, _ in groupby(writers)]
    if len(blocks) != len(set(blocks)):
        yield f"{place}: runs wrote in turns: {blocks}"
    # Ids are made in the order in which runs are received.
    known = [run_id for run_id in blocks if run_id in rows]
    if known != sorted(known, key=lambda run_id: rows[run_id]["created_at"]):
        yield f"{place}: runs wrote out of order: {known}"
    attempts: dict[str, list[int]] = defaultdict(list)
    for state in states:
        attempts[state["metadata"]["run_id"]].append(state["metadata"]["run_attempt"])
    for run_id, made in attempts.items():
        if made != sorted(made):
            yield f"{place}: a stale attempt of {run_id} wrote: {made}"


def _of_trail(
    place: str, line: Line, rows: dict[str, Any], values: dict[str, Any]
) -> Iterator[str]:
    trail = [step.split("/") for step in values.get("trail") or ()]
    marks = [mark for mark, _ in groupby(trail, key=lambda step: step[0])]
    order = list(dict.fromkeys(run.mark for run in line.runs))
    seen = [mark for mark in marks if mark in order]
    if seen != [mark for mark in order if mark in seen]:
        yield f"{place}: the trail {marks} is out of the order {order}"
    statuses: dict[str, str] = {}
    for run in line.runs:
        if run.run_id in rows and not run.asks:
            statuses[run.mark] = rows[run.run_id]["status"]
    for mark, status in statuses.items():
        steps = [step for step in (s[1] for s in trail if s[0] == mark) if step.isdigit()]
        whole = [str(number) for number in range(1, STEPS + 1)]
        if steps != whole[: len(steps)] or (status == "success" and steps != whole):
            yield f"{place}: run {mark} is {status} with the steps {steps}"


def is_quiet(client: SyncLangGraphClient, line: Line) -> bool:
    """Whether no run of the thread is open any more."""
    try:
        runs = client.runs.list(line.thread_id, limit=1000)
    except NotFoundError:
        return True
    return all(run["status"] in FINAL for run in runs)
