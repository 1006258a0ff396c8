"""Clients that use an agent in every way they can think of, whatever becomes of the platform.

Each has threads of its own, so the order in which it was answered is the order of its runs.
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
AWAY = (httpx.HTTPError,)
"""How the platform shows that a part of it is away; API errors are `httpx.HTTPError`s too."""


@dataclass
class Made:
    """A run whose creation was acknowledged."""

    run_id: str
    mark: str
    may_be_gone: bool = False
    """Rolled back or deleted, perhaps."""
    asks: bool = False
    """It ends with a question, before its steps."""


@dataclass
class Line:
    """A thread and the runs that were made on it, in order."""

    thread_id: str
    runs: list[Made] = field(default_factory=list)
    is_deleted: bool = False


class Client(threading.Thread):
    """One user. What it does is drawn from the seed; when, nobody knows."""

    def __init__(self, number: int, seed: str, sdk: SyncLangGraphClient) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.lines: list[Line] = []
        self.apart: list[Line] = []
        """Threads that are used once, because of the order of their runs."""
        self.stateless = 0
        self.wrong: list[str] = []
        self._sdk = sdk
        self._draw = random.Random(f"{seed}/{number}")
        self._number = number
        self._count = 0
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        deeds: list[Callable[[Line], None]] = [
            self._queue, self._interrupt, self._roll_back, self._reject, self._plan,
            self._cancel, self._stream, self._answer, self._remove, self._wait,
        ]  # fmt: skip
        while not self._over.is_set():
            deed = self._draw.choice([*deeds, self._alone, self._batch])
            with suppress(*AWAY):
                if deed in {self._alone, self._batch}:
                    deed(None)  # type: ignore[arg-type]
                    continue
                deed(self._line())
            self._over.wait(self._draw.uniform(0.02, 0.2))

    # Threads and runs

    def _line(self) -> Line:
        """A thread of this client's; a new one now and then."""
        if self.lines and self._draw.random() < 0.6:
            return self._draw.choice(self.lines[-5:])
        line = Line(self._sdk.threads.create()["thread_id"])
        self.lines.append(line)
        return line

    def _input(self, **more: Any) -> dict[str, Any]:
        self._count += 1
        mark = f"{self._number}.{self._count}"
        seconds = self._draw.choice([0, 0, 0.05, 0.3, 1.0])
        return {"mark": mark, "seconds": seconds, "asks": False, **more}

    def _make(self, line: Line, **options: Any) -> Made:
        given = options.pop("input", None) or self._input()
        made = self._sdk.runs.create(line.thread_id, "chaos", input=given, **options)
        line.runs.append(Made(made["run_id"], given["mark"]))
        return line.runs[-1]

    # What users do

    def _queue(self, line: Line) -> None:
        for _ in range(self._draw.randint(1, 4)):
            self._make(line)

    def _supersede(self, line: Line, strategy: str) -> None:
        self._make(line, input=self._input(seconds=0.5))
        self._over.wait(self._draw.uniform(0, 1.5))
        if strategy == "rollback":
            for run in line.runs:
                run.may_be_gone = True
        self._make(line, multitask_strategy=strategy)

    def _interrupt(self, line: Line) -> None:
        self._supersede(line, "interrupt")

    def _roll_back(self, line: Line) -> None:
        self._supersede(line, "rollback")

    def _reject(self, line: Line) -> None:
        self._make(line, multitask_strategy="reject")

    def _plan(self, line: Line) -> None:
        # On a thread of its own: it takes its place at its planned start.
        line = Line(self._sdk.threads.create()["thread_id"])
        self.apart.append(line)
        self._make(line, after_seconds=self._draw.uniform(0.1, 3))

    def _cancel(self, line: Line) -> None:
        run = self._make(line, input=self._input(seconds=0.5))
        self._over.wait(self._draw.uniform(0, 1.5))
        action: Literal["interrupt", "rollback"] = self._draw.choice(["interrupt", "rollback"])
        run.may_be_gone = action == "rollback"
        self._sdk.runs.cancel(
            line.thread_id, run.run_id, action=action, wait=self._draw.random() < 0.5
        )

    def _remove(self, line: Line) -> None:
        run = self._make(line, input=self._input(seconds=0.3))
        self._over.wait(self._draw.uniform(0, 1))
        run.may_be_gone = True
        self._sdk.runs.delete(line.thread_id, run.run_id)

    def _stream(self, line: Line) -> None:
        given = self._input()
        parts = self._sdk.runs.stream(
            line.thread_id, "chaos", input=given, stream_mode=["updates", "values"],
            stream_resumable=self._draw.random() < 0.5,
            on_run_created=lambda made: line.runs.append(Made(made["run_id"], given["mark"])),
        )  # fmt: skip
        for _ in parts:
            pass

    def _wait(self, line: Line) -> None:
        given = self._input()
        answer = self._sdk.runs.wait(
            line.thread_id, "chaos", input=given, raise_error=False,
            on_run_created=lambda made: line.runs.append(Made(made["run_id"], given["mark"])),
        )  # fmt: skip
        self._compare(given, answer)

    def _answer(self, line: Line) -> None:
        line = Line(self._sdk.threads.create()["thread_id"])
        self.apart.append(line)
        given = self._input(asks=True)
        asked = self._make(line, input=given)
        asked.asks = True
        self._sdk.runs.join(line.thread_id, asked.run_id)
        made = self._sdk.runs.create(line.thread_id, "chaos", command={"resume": "yes"})
        line.runs.append(Made(made["run_id"], given["mark"]))

    def _alone(self, _: Line) -> None:
        given = self._input()
        self.stateless += 1
        answer = self._sdk.runs.wait(None, "chaos", input=given, raise_error=False)
        self._compare(given, answer)

    def _batch(self, _: Line) -> None:
        bodies = [{"assistant_id": "chaos", "input": self._input()} for _ in range(3)]
        made = self._sdk.runs.create_batch(bodies)  # type: ignore[arg-type]
        self.stateless += len(made)

    def _compare(self, given: dict[str, Any], answer: Any) -> None:
        """A result that names a run's mark names all its steps, each once."""
        if not isinstance(answer, dict) or "__error__" in answer:
            return
        mine = [step for step in answer.get("trail") or () if step.startswith(given["mark"] + "/")]
        if mine != [f"{given['mark']}/{number}" for number in range(1, STEPS + 1)]:
            self.wrong.append(f"{given['mark']} was answered {mine}")


def started(number: int, seed: str, make: Callable[[], SyncLangGraphClient]) -> list[Client]:
    clients = [Client(index, seed, make()) for index in range(number)]
    for client in clients:
        client.start()
    return clients


def stopped(clients: list[Client], seconds: float) -> list[Client]:
    """Ask all to stop; those who still wait for an answer after that time are returned."""
    for client in clients:
        client.stop()
    deadline = time.monotonic() + seconds
    for client in clients:
        client.join(max(0.0, deadline - time.monotonic()))
    return [client for client in clients if client.is_alive()]
