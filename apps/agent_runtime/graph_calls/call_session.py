"""A call to a graph host outside of runs, such as reading a thread's state or a graph's schema."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.store_operations import READ_ONLY, StoreExecutor, store_owner
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_runtime.hosts.request_tasks import RequestTasks
from apps.core.json import dumps, loads_small
from apps.graph_host.wire import MALFORMED, Frame, as_bytes


class GraphCall(NamedTuple):
    """A method of a graph host, with the revision and the graph."""

    revision: RevisionRef
    graph_id: str
    method: str
    thread: UUID | None
    """Primary key of the thread that the call may read."""
    thread_id: str | None
    params: bytes
    """JSON, with `thread_id` if the call is about a thread."""


class CallResult(NamedTuple):
    """The host's JSON result, or `{error, message}`."""

    succeeded: bool
    body: bytes


class CallSession:
    """One read-only call while its host executes it."""

    def __init__(
        self, host: GraphHost, call: GraphCall, checkpoints: CheckpointReader, store: StoreExecutor
    ) -> None:
        self._host = host
        self._call = call
        self._checkpoints = checkpoints
        self._store = store
        self._result: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self._requests = RequestTasks()

    async def execute(self, seconds: float) -> CallResult:
        """Send the call and wait for its result. Raises `TimeoutError`."""
        key = self._host.open_session(self)
        call = self._call
        try:
            async with asyncio.timeout(seconds):
                self._host.link.send(("call", key, call.graph_id, call.method, call.params))
                return await self._result
        finally:
            self._host.close_session(key)

    def on_frame(self, frame: Frame) -> None:
        kind, _, number, *fields = frame
        try:
            if kind == "result":
                succeeded, body = bool(fields[0]), as_bytes(fields[1])
                self._set_result(CallResult(succeeded, body if succeeded else _check_error(body)))
            elif kind in ("get", "list"):
                self._read_checkpoints(kind, number, fields)
            elif kind == "store":
                owner = store_owner(self._call.revision)
                self._spawn(
                    self._store.execute(
                        owner,
                        fields[0],
                        None,
                        lambda succeeded, value: self._answer(number, succeeded, value),
                    )
                )
            elif number:
                self._answer(number, False, READ_ONLY)
        except MALFORMED as error:
            message = f"malformed `{kind}`: {error}"
            if kind == "result":
                self._set_result(CallResult(False, error_body("GraphHostError", message)))
            else:
                self._answer(number, False, message)

    def on_host_exit(self, reason: str) -> None:
        self._set_result(CallResult(False, error_body("GraphHostDied", reason)))

    def _set_result(self, result: CallResult) -> None:
        if not self._result.done():
            self._result.set_result(result)

    def _read_checkpoints(self, kind: str, number: int, fields: list[Any]) -> None:
        thread_id, *filters = fields
        if self._call.thread is None or thread_id != self._call.thread_id:
            raise ValueError("A graph call may read its own thread only.")
        read = self._checkpoints.get if kind == "get" else self._checkpoints.list
        self._spawn(self._read_and_answer(number, read(self._call.thread, *filters)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._requests.spawn(work, self._host)

    async def _read_and_answer(self, number: int, read: Coroutine[Any, Any, Any]) -> None:
        try:
            self._answer(number, True, await read)
        except Exception as error:  # noqa: BLE001  (without an answer the host would wait forever)
            self._answer(
                number, False, f"The platform could not read the checkpoint: {type(error).__name__}"
            )

    def _answer(self, number: int, succeeded: bool, value: Any) -> None:  # noqa: FBT001  (a frame's field)
        try:
            self._host.link.send(("answer", number, succeeded, value))
        except ValueError as error:
            self._host.link.send(("answer", number, False, str(error)))


def _check_error(body: bytes) -> bytes:
    """Return the body of a failed call as the platform reads it."""
    reason = loads_small(body)
    name = str(reason["error"])
    return error_body(name, str(reason["message"]), is_of_agent=name not in _REQUEST_ERRORS)


_REQUEST_ERRORS = frozenset({"Refused", "LinkClosed"})
"""Errors of a host whose request the platform did not execute."""


def error_body(name: str, message: str, *, is_of_agent: bool = False) -> bytes:
    """Return the JSON body of a failed call; `is_of_agent`: the agent's own code raised."""
    return dumps({"error": name, "message": message, "is_of_agent": is_of_agent})
