"""Reports code that blocks the event loop, which stalls all runs of the host."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from .event_loop import TimedSelector

BLOCKED_SECONDS = 1.0
"""Time without a turn of the loop that is reported."""
POLL_SECONDS = 0.25
REPEAT_SECONDS = 60.0
"""A place is reported again after this time."""
MAX_PLACES = 1_000
_STACK_FRAMES = 8
_OWN_FOLDER = str(Path(__file__).parent)


class LoopWatchdog:
    """A thread that samples the stack of a blocked loop.

    Code that blocks without releasing the GIL also blocks this thread.
    """

    def __init__(self, selector: TimedSelector, project: Path) -> None:
        """The calling thread runs the loop; `project` contains the author's code."""
        self._selector = selector
        self._project = f"{project}/"
        self._thread_id = threading.get_ident()
        self._reported_at: dict[tuple[str, int], float] = {}

    def start(self) -> None:
        threading.Thread(target=self._watch, name="loop-watchdog", daemon=True).start()

    def _watch(self) -> None:
        reported = 0.0
        while True:
            time.sleep(POLL_SECONDS)
            since = self._selector.busy_since
            if not since or since == reported or time.monotonic() - since < BLOCKED_SECONDS:
                continue
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 (documented)
            if frame is not None and self._selector.busy_since == since:
                reported = since
                self._report(frame, time.monotonic() - since)

    def _report(self, frame: FrameType, seconds: float) -> None:
        stack = [f for f in traceback.extract_stack(frame) if not _is_own(f.filename)]
        own_code = [f for f in stack if f.filename.startswith(self._project)]
        place = (own_code or stack)[-1]
        key = (place.filename, place.lineno or 0)
        now = time.monotonic()
        if now - self._reported_at.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        if len(self._reported_at) >= MAX_PLACES:
            self._reported_at.clear()
        self._reported_at[key] = now
        path = place.filename.removeprefix(self._project)
        lines = "".join(traceback.format_list(stack[-_STACK_FRAMES:])).rstrip()
        print(  # noqa: T201
            f"WARNING: blocking code in {path}, line {place.lineno}, in {place.name}: the event "
            f"loop has been blocked for {seconds:.1f} s, and with it all runs of this process. Use "
            "an asynchronous client or `asyncio.to_thread`, or set BG_JOB_ISOLATED_LOOPS=true.\n"
            f"{lines}",
            file=sys.stderr,
            flush=True,
        )


def _is_own(filename: str) -> bool:
    return filename.startswith((_OWN_FOLDER, "<frozen "))
