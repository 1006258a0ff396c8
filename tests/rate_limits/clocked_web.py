"""The web process with a fake clock for counting: its time is a number in a file.

A test can fill an interval of an hour, test its last second and then the next interval.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

FILE = "SLIPWAY_TEST_CLOCK"
PROCESSES = "WEB_PROCESSES"
_NUMBER = struct.Struct("d")


class Clock:
    """Seconds since the epoch, shared by all processes that have the file."""

    def __init__(self, path: Path, now: float | None = None) -> None:
        if now is not None:
            path.write_bytes(_NUMBER.pack(now))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    def time(self) -> float:
        now: float = _NUMBER.unpack(self._memory[:])[0]
        return now

    def set(self, now: float) -> None:
        self._memory[:] = _NUMBER.pack(now)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django_ratelimit.core

    import config.asgi  # noqa: F401  (loads the apps)
    from apps.rate_limits import cache, counters
    from config import web

    clock = Clock(Path(os.environ[FILE]))
    # Counters must not expire while the clock is stopped.
    django_ratelimit.core.EXPIRATION_FUDGE = 600
    # A slow Redis lets requests through uncounted.
    cache.REDIS_TIMEOUT_SECONDS = 10
    counters.time = django_ratelimit.core.time = clock  # type: ignore[assignment, attr-defined]
    # The import takes seconds of CPU.
    for _ in range(int(os.environ[PROCESSES]) - 1):
        if os.fork() == 0:
            break
    web.main()


if __name__ == "__main__":
    main()
