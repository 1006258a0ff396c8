"""Clients that use an agent in many ways while processes of the platform are killed.

Each client has its own threads, so the order of its answers is the order of its runs.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from langgraph_sdk.client import SyncLangGraphClient

STEPS = 4
OUTAGE_ERRORS = (httpx.HTTPError,)
"""Errors while a part of the platform is down; API errors are `httpx.HTTPError`s too."""


@dataclass
class CreatedRun:
    """A run whose creation was acknowledged."""

    run_id: str
    mark: str
    may_be_gone: bool = False
    """Possibly rolled back or deleted."""
    asks: bool = False
    """It ends with an interrupt, before its steps."""


@dataclass
class ThreadRecord:
    """A thread and the runs that were created on it, in order."""

    thread_id: str
    runs: list[CreatedRun] = field(default_factory=list)
    is_deleted: bool = False


class Client(threading.Thread):
    """One user whose actions are chosen with the seed; their timing is random."""

    def __init__(self, number: int, seed: str, sdk: SyncLangGraphClient) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.threads: list[ThreadRecord] = []
        self.single_use_threads: list[ThreadRecord] = []
        """Threads that are used once, because their runs are not created in order."""
        self.stateless = 0
        self.violations: list[str] = []
        self._sdk = sdk
        self._random = random.Random(f"{seed}/{number}")
        self._number = number
        self._count = 0
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        actions: list[Callable[[ThreadRecord], None]] = [
            self._queue, self._interrupt, self._roll_back, self._reject, self._schedule,
            self._cancel, self._stream, self._answer, self._delete_run, self._wait,
        ]  # fmt: skip
        while not self._stopping.is_set():
            action = self._random.choice([*actions, self._run_stateless, self._batch])
            with suppress(*OUTAGE_ERRORS):
                if action in {self._run_stateless, self._batch}:
                    action(None)  # type: ignore[arg-type]
                    continue
                action(self._choose_thread())
            self._stopping.wait(self._random.uniform(0.02, 0.2))

    # Threads and runs

    def _choose_thread(self) -> ThreadRecord:
        """Return one of the client's threads, sometimes a new one."""
        if self.threads and self._random.random() < 0.6:
            return self._random.choice(self.threads[-5:])
        thread = ThreadRecord(self._sdk.threads.create()["thread_id"])
        self.threads.append(thread)
        return thread

    def _input(self, **fields: Any) -> dict[str, Any]:
        self._count += 1
        mark = f"{self._number}.{self._count}"
        seconds = self._random.choice([0, 0, 0.05, 0.3, 1.0])
        return {"mark": mark, "seconds": seconds, "asks": False, **fields}

    def _create_run(self, thread: ThreadRecord, **options: Any) -> CreatedRun:
        graph_input = options.pop("input", None) or self._input()
        run = self._sdk.runs.create(thread.thread_id, "chaos", input=graph_input, **options)
        return self._record(thread, run, graph_input)

    @staticmethod
    def _record(thread: ThreadRecord, run: Any, graph_input: dict[str, Any]) -> CreatedRun:
        thread.runs.append(CreatedRun(run["run_id"], graph_input["mark"]))
        return thread.runs[-1]

    # Actions

    def _queue(self, thread: ThreadRecord) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._create_run(thread)

    def _preempt(self, thread: ThreadRecord, strategy: str) -> None:
        self._create_run(thread, input=self._input(seconds=0.5))
        self._stopping.wait(self._random.uniform(0, 1.5))
        if strategy == "rollback":
            for run in thread.runs:
                run.may_be_gone = True
        self._create_run(thread, multitask_strategy=strategy)

    def _interrupt(self, thread: ThreadRecord) -> None:
        self._preempt(thread, "interrupt")

    def _roll_back(self, thread: ThreadRecord) -> None:
        self._preempt(thread, "rollback")

    def _reject(self, thread: ThreadRecord) -> None:
        self._create_run(thread, multitask_strategy="reject")

    def _schedule(self, thread: ThreadRecord) -> None:
        # On a new thread: a scheduled run gets its place in the order when it starts.
        thread = ThreadRecord(self._sdk.threads.create()["thread_id"])
        self.single_use_threads.append(thread)
        self._create_run(thread, after_seconds=self._random.uniform(0.1, 3))

    def _cancel(self, thread: ThreadRecord) -> None:
        run = self._create_run(thread, input=self._input(seconds=0.5))
        self._stopping.wait(self._random.uniform(0, 1.5))
        action: Literal["interrupt", "rollback"] = self._random.choice(["interrupt", "rollback"])
        run.may_be_gone = action == "rollback"
        self._sdk.runs.cancel(
            thread.thread_id, run.run_id, action=action, wait=self._random.random() < 0.5
        )

    def _delete_run(self, thread: ThreadRecord) -> None:
        run = self._create_run(thread, input=self._input(seconds=0.3))
        self._stopping.wait(self._random.uniform(0, 1))
        run.may_be_gone = True
        self._sdk.runs.delete(thread.thread_id, run.run_id)

    def _stream(self, thread: ThreadRecord) -> None:
        graph_input = self._input()
        parts = self._sdk.runs.stream(
            thread.thread_id, "chaos", input=graph_input, stream_mode=["updates", "values"],
            stream_resumable=self._random.random() < 0.5,
            on_run_created=lambda run: self._record(thread, run, graph_input),
        )  # fmt: skip
        for _ in parts:
            pass

    def _wait(self, thread: ThreadRecord) -> None:
        graph_input = self._input()
        answer = self._sdk.runs.wait(
            thread.thread_id, "chaos", input=graph_input, raise_error=False,
            on_run_created=lambda run: self._record(thread, run, graph_input),
        )  # fmt: skip
        self._check_result(graph_input, answer)

    def _answer(self, thread: ThreadRecord) -> None:
        thread = ThreadRecord(self._sdk.threads.create()["thread_id"])
        self.single_use_threads.append(thread)
        graph_input = self._input(asks=True)
        interrupted_run = self._create_run(thread, input=graph_input)
        interrupted_run.asks = True
        self._sdk.runs.join(thread.thread_id, interrupted_run.run_id)
        run = self._sdk.runs.create(thread.thread_id, "chaos", command={"resume": "yes"})
        self._record(thread, run, graph_input)

    def _run_stateless(self, _: ThreadRecord) -> None:
        graph_input = self._input()
        self.stateless += 1
        answer = self._sdk.runs.wait(None, "chaos", input=graph_input, raise_error=False)
        self._check_result(graph_input, answer)

    def _batch(self, _: ThreadRecord) -> None:
        bodies = [{"assistant_id": "chaos", "input": self._input()} for _ in range(3)]
        runs = self._sdk.runs.create_batch(bodies)  # type: ignore[arg-type]
        self.stateless += len(runs)

    def _check_result(self, graph_input: dict[str, Any], answer: Any) -> None:
        """Record a violation unless the result has each step of the run once."""
        if not isinstance(answer, dict) or "__error__" in answer:
            return
        steps = [
            step for step in answer.get("trail") or () if step.startswith(graph_input["mark"] + "/")
        ]
        if steps != [f"{graph_input['mark']}/{number}" for number in range(1, STEPS + 1)]:
            self.violations.append(f"{graph_input['mark']} was answered {steps}")


def start_clients(number: int, seed: str, make: Callable[[], SyncLangGraphClient]) -> list[Client]:
    clients = [Client(index, seed, make()) for index in range(number)]
    for client in clients:
        client.start()
    return clients


def stop_clients(clients: list[Client], seconds: float) -> list[Client]:
    """Stop all clients; return those that still wait for an answer after `seconds`."""
    for client in clients:
        client.stop()
    deadline = time.monotonic() + seconds
    for client in clients:
        client.join(max(0.0, deadline - time.monotonic()))
    return [client for client in clients if client.is_alive()]
