"""Progress output on the terminal."""

import sys
import time


class Terminal:
    """Prints steps and problems, one per line."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start of the program."""
        return time.monotonic() - self._started

    def step(self, text: str) -> None:
        self._write(f"  {text}")

    def block(self, text: str) -> None:
        self._write(f"\n{text}\n")

    def trouble(self, process: str, line: str) -> None:
        self._write(f"  {process} | {line}")

    def region_line(self, region: str, line: str) -> None:
        """Print a line of one region's supervisor."""
        self._write(f"{region} |{line}" if line else "")

    def failed(self, message: str) -> None:
        self._write(f"\nSlipway did not start: {message}")

    def _write(self, text: str) -> None:
        # A closed terminal or a full disk must not stop the platform.
        try:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            return
