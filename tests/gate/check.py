"""`make check` next to the first phase, which collects the tests on one core for a while."""

from __future__ import annotations

import subprocess
from pathlib import Path

from config.env import BASE_DIR

LIMIT_SECONDS = 900
OUTPUT_LINES = 60


class Check:
    """The checks, as a process of their own; a red one ends the run."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "check.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["make", "check"],
                cwd=BASE_DIR,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_red(self) -> bool:
        """Whether the checks have failed so far."""
        return self._process.poll() not in {None, 0}

    def wait(self) -> bool:
        """Wait for the end of the checks; whether they are green."""
        try:
            return self._process.wait(LIMIT_SECONDS) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            return False

    def read_output(self) -> str:
        """Return the last lines of what the checks printed."""
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-OUTPUT_LINES:])
