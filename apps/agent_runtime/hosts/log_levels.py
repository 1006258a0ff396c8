"""Finds the level of each line of a graph host's output, in which a traceback has many lines."""

from __future__ import annotations

import re

from apps.graph_host.failure_log import CONTINUATION

_RECORD = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):")
_TRACEBACK = re.compile(
    r"[ |+]*(Exception Group )?Traceback \(most recent call last\):"
    r"|Exception (in thread|ignored in) "
    r"|During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
)
_EXCEPTION = re.compile(r"[^\W\d][\w.]*(:|$)")
# LangGraph adds this note to an exception that leaves a node.
_NOTE = re.compile(r"During task with name ")
_FRAME = '  File "'


class LineLevels:
    """Finds the levels of the lines of one process, in order.

    A line of Python's `logging` or of the graph host begins with its level. A traceback has level
    ERROR, or CRITICAL after a line with that level; frames without a traceback's head have the
    level of the line before them. All else is INFO.
    """

    def __init__(self) -> None:
        self._level = "INFO"
        self._is_traceback = False
        """Whether the line before is in a traceback, or is its exception."""
        self._expects_exception = False

    def split(self, line: str) -> tuple[str, str]:
        """Return the level and the text of the next line."""
        if line.startswith(CONTINUATION):
            return self._level, line[1:]
        self._level = self._find_level(line)
        return self._level, line

    def _find_level(self, line: str) -> str:
        if record := _RECORD.match(line):
            self._is_traceback = False
            return record[1]
        if _TRACEBACK.match(line):
            self._is_traceback = self._expects_exception = True
            return "CRITICAL" if self._level == "CRITICAL" else "ERROR"
        if self._continues_traceback(line):
            return self._level
        self._is_traceback = line.startswith(_FRAME) and self._level != "INFO"
        self._expects_exception = False
        return self._level if self._is_traceback else "INFO"

    def _continues_traceback(self, line: str) -> bool:
        if not self._is_traceback:
            return False
        if line.startswith((" ", "\t")) or _NOTE.match(line):
            return True
        is_exception = self._expects_exception and _EXCEPTION.match(line) is not None
        self._expects_exception = False
        return is_exception
