"""Reads the text of an error: its message and its frames, those of libraries apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import PurePosixPath

from apps.trace_store.run_status import Status, classify_error
from apps.tracing.pages.interrupts import InterruptRequest, parse_requests

MAX_TEXT = 40_000
"""Characters of an error that a page shows."""
MAX_FRAMES = 200
_MAX_END = 100_000
"""Characters at both ends of a long text in which message and frames are looked for."""
_MAX_TITLE = 500
_MAX_CODE = 300
_TRACEBACK = "Traceback (most recent call last)"
_PYTHON_FRAME = re.compile(
    r'^\s*(?:\|\s*)?File "(?P<path>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$'
)
_JAVASCRIPT_FRAME = re.compile(
    r"^\s+at (?:async )?(?:(?P<function>[^()\n]+?) \()?"
    r"(?:file://)?(?P<path>[^()\s]+):(?P<line>\d+):\d+\)?$"
)
_REPR = re.compile(r"""(?P<name>[\w.]+)\((?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"),?\)""")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/|node_modules/|/lib/python\d|^<|^node:|^internal/|/graph_host/"
)
_LIBRARY_ROOT = re.compile(r"^.*(?:(?:site|dist)-packages|node_modules|/lib/python\d[^/]*)/")
_REPOSITORY_ROOT = re.compile(
    r"^(?:.*/revisions/[0-9a-f-]{36}/\d+/source|/deps/[^/]+|/github/workspace|/workspaces/[^/]+"
    r"|/usr/src/app|/app|/var/task)/"
)
"""Where a repository lies: in a deployment, in containers, and in continuous integration."""


@dataclass(frozen=True)
class Frame:
    """A frame of a traceback; the path is relative to the repository or package if it is known."""

    path: str
    line: int
    function: str = ""
    code: str = ""
    is_library: bool = False


@dataclass(frozen=True)
class FrameGroup:
    """Frames one after the other, either own ones or those of libraries."""

    frames: Sequence[Frame]
    is_library: bool


@dataclass(frozen=True)
class ErrorReport:
    """An error: its first line, further lines of its message, its frames, and the whole text."""

    title: str
    text: str
    is_interrupt: bool = False
    details: str = ""
    groups: Sequence[FrameGroup] = ()
    requests: Sequence[InterruptRequest] = ()
    """What an interrupted run waits for."""


def build_error(text: str) -> ErrorReport:
    """Read the error of a run; a text without frames has a title and details only."""
    is_interrupt = classify_error(text) is Status.INTERRUPTED
    requests = parse_requests(text) if is_interrupt else []
    text = text.strip()
    shown = text[:MAX_TEXT]
    if len(text) > 2 * _MAX_END:
        text = f"{text[:_MAX_END]}\n{text[-_MAX_END:]}"
    head, traceback_word, trace = text.partition(_TRACEBACK)
    if traceback_word:
        message = head.strip() or _last_message(trace)
    else:
        message = "\n".join(_until_frame(text.splitlines())).strip() or text
    title, _, details = _read_repr(message).partition("\n")
    frames = [] if is_interrupt else list(_read_frames(text))[-MAX_FRAMES:]
    groups = [
        FrameGroup(list(group), is_library)
        for is_library, group in groupby(_shorten(frames), lambda frame: frame.is_library)
    ]
    details = details.strip()[:MAX_TEXT]
    return ErrorReport(title[:_MAX_TITLE], shown, is_interrupt, details, groups, requests)


def _read_repr(message: str) -> str:
    """Return the `repr` of an exception whose text has several lines as `Name: text`."""
    match = _REPR.fullmatch(message[:MAX_TEXT]) if "\\n" in message else None
    if match is None:
        return message
    try:
        return f"{match['name']}: {ast.literal_eval(match['text'])}"
    except (SyntaxError, ValueError):  # not Python's escapes
        return message


def _until_frame(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if _JAVASCRIPT_FRAME.match(line):
            return
        yield line


def _last_message(trace: str) -> str:
    """Return the lines behind the last frame: the exception with all lines of its message."""
    lines = trace.splitlines()
    last = max((i for i, line in enumerate(lines) if _PYTHON_FRAME.match(line)), default=-1)
    rest = lines[last + 1 :]
    start = next((i for i, line in enumerate(rest) if line.strip() and line[0] != " "), None)
    return "" if start is None else "\n".join(rest[start:]).strip()


def _read_frames(text: str) -> Iterator[Frame]:
    """Yield the frames of the last traceback in the text."""
    lines = text[text.rfind(_TRACEBACK) :].splitlines() if _TRACEBACK in text else text.splitlines()
    for index, line in enumerate(lines):
        match = _PYTHON_FRAME.match(line)
        code = ""
        if match is not None:
            following = lines[index + 1] if index + 1 < len(lines) else ""
            is_code = following.startswith("    ") and not _PYTHON_FRAME.match(following)
            code = following.strip()[:_MAX_CODE] if is_code else ""
        else:
            match = _JAVASCRIPT_FRAME.match(line)
        if match is None:
            continue
        path = match["path"]
        yield Frame(
            path,
            int(match["line"][:9]),
            (match["function"] or "").strip()[:200],
            code,
            is_library=_LIBRARY.search(path) is not None,
        )


def _shorten(frames: Sequence[Frame]) -> list[Frame]:
    own_folders = {
        PurePosixPath(frame.path).parent
        for frame in frames
        if not frame.is_library and frame.path.startswith("/")
    }
    common = _common_folder(own_folders)
    shortened = []
    for frame in frames:
        if frame.is_library:
            path = _LIBRARY_ROOT.sub("", frame.path)
        elif (path := _REPOSITORY_ROOT.sub("", frame.path)) == frame.path and common:
            path = frame.path.removeprefix(common)
        shortened.append(replace(frame, path=path))
    return shortened


def _common_folder(folders: set[PurePosixPath]) -> str:
    """Return the folder above all of these, with a slash; with one folder, the one above it."""
    if not folders:
        return ""
    first, *others = folders
    candidates = [first.parent] if not others else [first, *first.parents]
    for folder in candidates:
        if all(other.is_relative_to(folder) for other in others) and folder.name:
            return f"{folder}/"
    return ""
