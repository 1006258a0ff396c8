"""Answers of graphs about threads that have not changed since.

A thread's row is written with everything that changes what its graph would say: runs that begin,
save and end, edits, prunings, roll-backs. So the row's own version, read in the same request, says
whether an answer still holds, whichever process or machine changed the thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

MAX_BYTES = 32 * 1024 * 1024
MAX_ENTRY_BYTES = 1024 * 1024

CallKey = tuple[Any, ...]


class StateCache:
    """The answers that were given last, up to so many bytes."""

    def __init__(self, most_bytes: int = MAX_BYTES, largest: int = MAX_ENTRY_BYTES) -> None:
        self._most_bytes, self._largest = most_bytes, largest
        self._answers: OrderedDict[tuple[UUID, str, CallKey], bytes] = OrderedDict()
        self._size = 0

    async def answer(
        self,
        thread: UUID,
        version: str,
        question: CallKey,
        ask: Callable[[], Awaitable[bytes]],
    ) -> bytes:
        """The answer about the thread at that version, asked for unless it is known."""
        key = thread, version, question
        known = self._answers.get(key)
        if known is not None:
            self._answers.move_to_end(key)
            return known
        answer = await ask()
        if len(answer) <= self._largest and key not in self._answers:
            self._answers[key] = answer
            self._size += len(answer)
            while self._size > self._most_bytes:
                _, forgotten = self._answers.popitem(last=False)
                self._size -= len(forgotten)
        return answer

    @property
    def size(self) -> int:
        return self._size


state_cache = StateCache()
