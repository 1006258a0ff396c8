"""The log files of the processes: kept short on disk, their errors shown at the terminal."""

import os
import re
import shutil
import time
from pathlib import Path

from config.supervisor.terminal import Terminal

LARGEST_BYTES = 10 << 20
KEPT = 3
# One trouble is told once in this time; the file has every line.
QUIET_SECONDS = 60
ERROR = re.compile(
    r"\[(error|critical)\s*\]|\"level\": ?\"(error|critical)\"|\b(FATAL|PANIC|CRITICAL)\b"
    r"|^[\w.]*(Error|Exception)\b"
)
VARYING = re.compile(r"[0-9a-fx]*[0-9][0-9a-f:.TZ-]*")


class Logs:
    """Looks at every `*.log` of a folder each time it is asked to."""

    def __init__(self, folder: Path, terminal: Terminal) -> None:
        self.folder = folder
        self._terminal = terminal
        # What was there before this start is history.
        self._read: dict[Path, int] = {log: log.stat().st_size for log in self._files()}

        self._told: dict[str, float] = {}

    def look(self) -> None:
        for log in self._files():
            self._show_errors(log)
            if log.stat().st_size > LARGEST_BYTES:
                self._rotate(log)

    def last_lines(self, name: str, count: int = 5) -> list[str]:
        """The end of one log, for telling why a process died."""
        try:
            with (self.folder / f"{name}.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-count:]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _show_errors(self, log: Path) -> None:
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            fresh = file.read(1 << 20)
        # A line that is still being written waits for its end.
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if ERROR.search(line) and self._is_news(log.stem, line):
                self._terminal.trouble(log.stem, line[:300])

    def _is_news(self, process: str, line: str) -> bool:
        """Whether nothing like it was told lately: times and ids make no difference."""
        now = time.monotonic()
        self._told = {told: at for told, at in self._told.items() if now - at < QUIET_SECONDS}
        like = f"{process} {VARYING.sub('', line)}"
        if like in self._told:
            return False
        self._told[like] = now
        return True

    def _rotate(self, log: Path) -> None:
        """Copy and empty: the processes append to the open file, so it can't be renamed."""
        for number in range(KEPT - 1, 0, -1):
            older = log.with_name(f"{log.name}.{number}")
            if older.exists():
                older.rename(log.with_name(f"{log.name}.{number + 1}"))
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
        self._read[log] = 0
