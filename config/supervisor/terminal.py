"""What the person at the terminal reads: calm lines, one a step."""

import sys
import time


class Terminal:
    """Progress and trouble, each on a line of its own."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start of the program."""
        return time.monotonic() - self._started

    def step(self, what: str) -> None:
        self._write(f"  {what}")

    def block(self, text: str) -> None:
        self._write(f"\n{text}\n")

    def trouble(self, process: str, line: str) -> None:
        self._write(f"  {process} | {line}")

    def said(self, region: str, line: str) -> None:
        """What the supervisor of one of several regions says."""
        self._write(f"{region} |{line}" if line else "")

    def failed(self, sentence: str) -> None:
        self._write(f"\nSlipway did not start: {sentence}")

    def _write(self, text: str) -> None:
        # Whoever reads may be gone (a closed terminal, a full disk): that stops nothing.
        try:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            return
