"""Line differences of two texts, with the changed words of a line that was replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_LINES = 1_000
"""The longest text to compare; the time grows with the square of the lines."""
MAX_LINE_CHARACTERS = 2_000
_CONTEXT_LINES = 3
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class DiffPart:
    text: str
    is_changed: bool = False


@dataclass(frozen=True)
class DiffLine:
    """A line: `same`, `removed`, `added`, or `skipped`, which replaces unchanged lines."""

    kind: str
    parts: Sequence[DiffPart]

    @property
    def mark(self) -> str:
        return {"removed": "-", "added": "+"}.get(self.kind, " ")


@dataclass(frozen=True)
class TextDiff:
    lines: Sequence[DiffLine] = ()
    is_too_long: bool = False

    @property
    def is_equal(self) -> bool:
        return not self.is_too_long and not self.lines


def compare_texts(first: str, second: str) -> TextDiff:
    """Return the changed lines with their context; no lines if the texts are equal."""
    if first == second:
        return TextDiff()
    before, after = first.splitlines(), second.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        return TextDiff(is_too_long=True)
    if any(len(line) > MAX_LINE_CHARACTERS for line in (*before, *after)):
        return TextDiff(is_too_long=True)
    matcher = SequenceMatcher(None, before, after)
    return TextDiff(list(_list_lines(matcher, before, after)))


def _list_lines(
    matcher: SequenceMatcher[str], before: Sequence[str], after: Sequence[str]
) -> Iterator[DiffLine]:
    end = 0
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        yield from _skipped_line(group[0][1] - end)
        for tag, start_a, end_a, start_b, end_b in group:
            if tag == "equal":
                yield from (DiffLine("same", [DiffPart(x)]) for x in before[start_a:end_a])
            else:
                yield from _changed_lines(before[start_a:end_a], after[start_b:end_b])
        end = group[-1][2]
    yield from _skipped_line(len(before) - end)


def _skipped_line(count: int) -> Iterator[DiffLine]:
    if count > 0:
        text = f"{count} unchanged line{'' if count == 1 else 's'}"
        yield DiffLine("skipped", [DiffPart(text)])


def _changed_lines(removed: Sequence[str], added: Sequence[str]) -> Iterator[DiffLine]:
    if len(removed) != len(added):
        yield from (DiffLine("removed", [DiffPart(line)]) for line in removed)
        yield from (DiffLine("added", [DiffPart(line)]) for line in added)
        return
    pairs = [_compare_words(a, b) for a, b in zip(removed, added, strict=True)]
    yield from (DiffLine("removed", old) for old, _ in pairs)
    yield from (DiffLine("added", new) for _, new in pairs)


def _compare_words(first: str, second: str) -> tuple[list[DiffPart], list[DiffPart]]:
    """Return both lines as parts; the parts that differ are marked."""
    before, after = _WORDS.findall(first), _WORDS.findall(second)
    old: list[DiffPart] = []
    new: list[DiffPart] = []
    matcher = SequenceMatcher(None, before, after)
    for tag, start_a, end_a, start_b, end_b in matcher.get_opcodes():
        if start_a < end_a:
            old.append(DiffPart("".join(before[start_a:end_a]), tag != "equal"))
        if start_b < end_b:
            new.append(DiffPart("".join(after[start_b:end_b]), tag != "equal"))
    return old, new
