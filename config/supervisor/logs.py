"""Rotation of the processes' log files, and their errors on the terminal."""

import os
import re
import shutil
import time
from pathlib import Path

from config.supervisor.terminal import Terminal

MAX_BYTES = 10 << 20
MAX_FILES = 3
# A repeated error is shown once in this time; the file has every line.
REPEAT_SECONDS = 60
ERROR = re.compile(
    r"\[(error|critical)\s*\]|\"level\": ?\"(error|critical)\"|\b(FATAL|PANIC|CRITICAL)\b"
    r"|^[\w.]*(Error|Exception)\b"
)
VARYING = re.compile(r"[0-9a-fx]*[0-9][0-9a-f:.TZ-]*")


class Logs:
    """Follows every `*.log` of a folder."""

    def __init__(self, folder: Path, terminal: Terminal) -> None:
        self.folder = folder
        self._terminal = terminal
        # Lines written before this start are skipped.
        self._read: dict[Path, int] = {log: log.stat().st_size for log in self._files()}

        self._shown_at: dict[str, float] = {}

    def poll(self) -> None:
        """Show new errors and rotate large files."""
        for log in self._files():
            self._show_errors(log)
            if log.stat().st_size > MAX_BYTES:
                self._rotate(log)

    def last_lines(self, name: str, count: int = 5) -> list[str]:
        """Return the last lines of a process's log."""
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
            chunk = file.read(1 << 20)
        # An incomplete last line is read next time.
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(complete)
        for line in complete.decode(errors="replace").splitlines():
            if ERROR.search(line) and self._is_new(log.stem, line):
                self._terminal.trouble(log.stem, line[:300])

    def _is_new(self, process: str, line: str) -> bool:
        """Return whether no similar line (ignoring times and ids) was shown recently."""
        now = time.monotonic()
        self._shown_at = {
            key: at for key, at in self._shown_at.items() if now - at < REPEAT_SECONDS
        }
        key = f"{process} {VARYING.sub('', line)}"
        if key in self._shown_at:
            return False
        self._shown_at[key] = now
        return True

    def _rotate(self, log: Path) -> None:
        """Copy and truncate: the processes keep the file open for appending."""
        for number in range(MAX_FILES - 1, 0, -1):
            older = log.with_name(f"{log.name}.{number}")
            if older.exists():
                older.rename(log.with_name(f"{log.name}.{number + 1}"))
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
        self._read[log] = 0
