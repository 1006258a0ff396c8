"""What the runs of a worker say: to those who listen now, and for those who come back later."""

from __future__ import annotations

from collections.abc import Callable

from apps.agent_runtime.db.group_commit import Ledger
from apps.agent_runtime.db.write_batch import Claimed
from apps.agent_runtime.runs.run_result import Outcome
from apps.agent_runtime.runs.stream_persistence import StreamKeeper
from apps.agent_server.streaming.writer import PendingBatch, StreamWriter
from apps.core.json import dumps

Events = list[tuple[str, bytes]]


class Voice:
    """The streams of one engine's runs; `may_speak` says whether their leases are surely held."""

    def __init__(self, ledger: Ledger, may_speak: Callable[[], bool]) -> None:
        self._keeper = StreamKeeper(ledger)
        self._writer = StreamWriter(persist=self._keeper.keep)
        self._may_speak = may_speak

    def begin(self, claimed: Claimed) -> None:
        """Say that an attempt begins: the first event, as soon as the run is claimed."""
        if not self._may_speak():
            return
        if claimed.resumable:
            self._keeper.open(claimed.token)
        metadata = {"run_id": str(claimed.run_id), "attempt": claimed.attempt}
        self._writer.start_stream(
            claimed.run_id,
            [("metadata", dumps(metadata))],
            thread=claimed.thread,
            graph_id=claimed.graph_id,
            is_first=claimed.attempt == 1,
            resumable=claimed.resumable,
        )

    def say(self, claimed: Claimed, events: Events) -> bool:
        """Append events; False asks the caller to wait until the voice is `relieved`."""
        if not self._may_speak():
            return True
        return self._writer.write(claimed.run_id, events, resumable=claimed.resumable)

    async def relieved(self) -> None:
        await self._writer.below_high_water()

    def close(self, claimed: Claimed, outcome: Outcome) -> PendingBatch:
        """Make the last events of a run, kept with its end and `released` when that is committed.

        Until then nobody hears them: who does may ask for the state, or answer the questions.
        """
        events: Events = list(outcome.closing)
        if outcome.error_event is not None:
            events.append(("error", outcome.error_event))
        sealed = self._writer.close_stream(
            claimed.run_id,
            outcome.ending.status,
            events=events,
            result=outcome.result,
            thread_status=outcome.ending.thread_status,
            resumable=claimed.resumable,
        )
        self._keeper.close(claimed.token)
        return sealed

    def release(self, sealed: PendingBatch) -> None:
        self._writer.send(sealed)

    def fall_silent(self, claimed: Claimed) -> None:
        """The run is not this worker's any more, or not for now."""
        self._writer.discard(claimed.run_id)
        self._keeper.close(claimed.token)

    async def aclose(self) -> None:
        await self._writer.aclose()
