"""Publishes the stream events of a worker's runs to Redis, and of resumable runs to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.write_batch import ClaimedRun
from apps.agent_runtime.runs.run_result import RunResult
from apps.agent_runtime.runs.stream_persistence import StreamPersistence
from apps.agent_server.streaming.writer import PendingBatch, StreamWriter
from apps.core.json import dumps

Events = list[tuple[str, bytes]]


class EventPublisher:
    """The event streams of one engine's runs.

    Nothing is published while `holds_leases()` is false: another worker may execute the runs.
    """

    def __init__(self, writer: GroupCommitWriter, holds_leases: Callable[[], bool]) -> None:
        self._persistence = StreamPersistence(writer)
        self._stream_writer = StreamWriter(persist=self._persistence.append)
        self._holds_leases = holds_leases

    def open_stream(self, run: ClaimedRun) -> None:
        """Publish the `metadata` event of an attempt, right after the claim."""
        if not self._holds_leases():
            return
        if run.resumable:
            self._persistence.open(run.token)
        metadata = {"run_id": str(run.run_id), "attempt": run.attempt}
        self._stream_writer.start_stream(
            run.run_id,
            [("metadata", dumps(metadata))],
            thread=run.thread,
            deployment=run.deployment_id,
            graph_id=run.graph_id,
            is_first=run.attempt == 1,
            resumable=run.resumable,
        )

    def publish(self, run: ClaimedRun, events: Events) -> bool:
        """Append events. False: the caller should pause until `wait_writable` returns."""
        if not self._holds_leases():
            return True
        return self._stream_writer.write(run.run_id, events, resumable=run.resumable)

    async def wait_writable(self) -> None:
        """Return when the queue of unsent events is below its high-water mark."""
        await self._stream_writer.wait_writable()

    async def wait_sent(self) -> None:
        """Return when the events that are queued now are sent, or could not be."""
        await self._stream_writer.wait_sent()

    def close_stream(self, run: ClaimedRun, result: RunResult) -> PendingBatch:
        """Prepare the last events of a run; `send` publishes them after the end is committed.

        A client that has read them may read the thread's state or resume the interrupt at once.
        """
        events: Events = list(result.closing_events)
        if result.error_event is not None:
            events.append(("error", result.error_event))
        batch = self._stream_writer.close_stream(
            run.run_id,
            result.run_end.status,
            events=events,
            result=result.response,
            thread_status=result.run_end.thread_status,
            resumable=run.resumable,
        )
        self._persistence.close(run.token)
        return batch

    def send(self, batch: PendingBatch) -> None:
        self._stream_writer.send(batch)

    def discard(self, run: ClaimedRun) -> None:
        """Drop unsent events of a run that this worker no longer executes."""
        self._stream_writer.discard(run.run_id)
        self._persistence.close(run.token)

    async def aclose(self) -> None:
        await self._stream_writer.aclose()
