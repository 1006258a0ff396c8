"""The part of an installer's output that says why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_LINES = 30
_MAX_STEPS = 2
_STARTS = ("\N{MULTIPLICATION SIGN}", "error:", "ERROR:", "hint:")
_STEP = re.compile(r"\s*(?:cause: |[^\w\s]+ )?(?=(?:And b|B)ecause )")
_UNSATISFIABLE = re.compile(r"your\s+requirements\s+are\s+unsatisfiable")


def describe_failure(tail: Sequence[str], *, minimum: str) -> str:
    """Return the reason in the last lines of an installer's output, its summary first.

    uv derives a conflict in up to hundreds of steps, which the log has; the last ones name the
    packages of the project. `minimum` is the platform's own requirement (`langgraph>=0.4.10`).
    """
    lines = [line for line in tail if line.strip()]
    steps = _last_steps(lines)
    if steps and _UNSATISFIABLE.search(steps[-1]):
        summary = "no versions satisfy all requirements."
        if minimum in steps[-1]:
            summary = (
                f"no versions satisfy both the project's requirements and {minimum}, the minimum of"
                " this platform and of LangGraph's own server."
            )
        return "\n".join([summary, *steps])
    for index, line in enumerate(lines):
        if line.lstrip().startswith(_STARTS):
            return "\n".join(lines[index:][:_MAX_LINES])
    return "\n".join(lines[-10:]) or "no error message."


def _last_steps(lines: list[str]) -> list[str]:
    """Return the last steps of uv's derivation, each in one line; none if there are none."""
    steps: list[list[str]] = []
    for line in lines:
        if match := _STEP.match(line):
            steps.append([line[match.end() :]])
        elif steps:
            steps[-1].append(line.strip())
    return [" ".join(step) for step in steps[-_MAX_STEPS:]]
