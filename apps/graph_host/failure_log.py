"""Writes tracebacks of the author's code to the output, which is the deployment's log."""

from __future__ import annotations

import sys
import traceback

MAX_FRAMES = 40
"""Of each exception in a chain; a recursion has a thousand."""
MAX_CHARACTERS = 32_000
CONTINUATION = "\x1f"
"""Begins each line of a traceback that is not indented; the worker removes it.

So the lines of an error's text, which may look like anything, have the level of the failure.
"""


def error_text(error: BaseException) -> str:
    """Return the text of an error of the author's code, whose `__str__` may raise."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001
        return f"The text of the error raised {type(failure).__name__}."


def log_failure(error: BaseException, subject: str) -> None:
    """Print the traceback of an error that ended the subject."""
    try:
        text = "".join(traceback.format_exception(error, limit=-MAX_FRAMES)).rstrip()
    except Exception as failure:  # noqa: BLE001 (`__str__` of the error is the author's code)
        text = f"{type(error).__name__}, whose text raised {type(failure).__name__}"
    if len(text) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    lines = [line if line[:1].isspace() else CONTINUATION + line for line in text.split("\n")]
    text = "\n".join([f"ERROR: {subject} failed", *lines])
    print(text, file=sys.stderr, flush=True)  # noqa: T201
