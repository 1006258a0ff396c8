"""The status of a run: from its end, and from the first words of its error.

Public tracers report control flow as an error: LangGraph raises `GraphInterrupt` where a graph
waits for a person and `ParentCommand` where a node sends a command to the graph above it, and a
cancelled task raises `CancelledError`. Such runs have not failed. The status is not a column: the
preview of an error begins with the name of the exception, so that it applies to stored runs, too.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    PENDING = "pending"
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


INTERRUPTIONS: Final = (
    *("GraphInterrupt", "NodeInterrupt", "ParentCommand", "GraphBubbleUp"),
    "GraphDrained",  # the run stops at a step, to be continued by another process
)
"""Exceptions with which LangGraph leaves a graph, in Python and JavaScript."""
CANCELLATIONS: Final = (
    *("CancelledError", "KeyboardInterrupt", "GeneratorExit"),  # Python
    "AbortError",  # JavaScript
    "UserInterrupt",  # the platform: a run that was cancelled, or superseded by another
)


def _pattern(names: tuple[str, ...]) -> str:
    # Both Python and PostgreSQL read it. The exception may have a module, and arguments.
    return f"^([A-Za-z0-9_.]*[.])?({'|'.join(names)})([^A-Za-z0-9_]|$)"


_INTERRUPTED, _CANCELLED = _pattern(INTERRUPTIONS), _pattern(CANCELLATIONS)
_CONTROL_FLOW = _pattern((*INTERRUPTIONS, *CANCELLATIONS))
_find_interruption = re.compile(_INTERRUPTED).search
_find_cancellation = re.compile(_CANCELLED).search


def classify_error(error_preview: str) -> Status:
    """The status of a run with an error."""
    if _find_interruption(error_preview):
        return Status.INTERRUPTED
    return Status.CANCELLED if _find_cancellation(error_preview) else Status.ERROR


def find_raised(error: str) -> str:
    """The part of an error text that begins with the exception, after a leading stack trace."""
    if not error.startswith("Traceback (most recent call last):"):
        return error
    frames_end = error.rfind("\n  ")
    exception_start = error.find("\n", frames_end + 1) + 1
    return error[exception_start:] if exception_start else error


_HAS_TEXT = "{t}.error_preview IS NOT NULL AND {t}.error_preview"
CONDITIONS: Final = {
    Status.ERROR: f"({_HAS_TEXT} !~ '{_CONTROL_FLOW}')",
    Status.INTERRUPTED: f"({_HAS_TEXT} ~ '{_INTERRUPTED}')",
    Status.CANCELLED: f"({_HAS_TEXT} ~ '{_CANCELLED}')",
    Status.PENDING: "({t}.error_preview IS NULL AND {t}.end_time IS NULL)",
    Status.SUCCESS: "({t}.error_preview IS NULL AND {t}.end_time IS NOT NULL)",
}
"""SQL of runs in the table or alias `t`, never NULL, with the condition of the partial index."""


def is_failed_sql(table: str) -> str:
    """SQL of whether a run has failed; never NULL."""
    return CONDITIONS[Status.ERROR].format(t=table)


def failure_sql(table: str) -> str:
    """SQL of the error preview of a failed run; NULL for others."""
    return f"CASE WHEN {is_failed_sql(table)} THEN {table}.error_preview END"


def status_sql(table: str) -> str:
    """SQL of the status of a run."""
    # Most runs have no error: the patterns are not evaluated for them.
    return (
        f"CASE WHEN {table}.error_preview IS NULL"
        f" THEN CASE WHEN {table}.end_time IS NULL THEN 'pending' ELSE 'success' END"
        f" WHEN {table}.error_preview ~ '{_INTERRUPTED}' THEN 'interrupted'"
        f" WHEN {table}.error_preview ~ '{_CANCELLED}' THEN 'cancelled' ELSE 'error' END"
    )
