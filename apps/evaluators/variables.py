"""Values of a run and its example for the variables of a judge's prompt.

A mapping has a path for each variable: `input`, `output` or `reference` and names or numbers below
it, such as `input.messages.0.content`, or a field of the run, such as `run.error`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from apps.evaluators.errors import BadEvaluator, ValueMissing

MAX_VARIABLES = 100
MAX_PATH_LENGTH = 500
INPUT, OUTPUT, REFERENCE, RUN = "input", "output", "reference", "run"
ROOTS: Mapping[str, str] = {
    "input": INPUT,
    "inputs": INPUT,
    "output": OUTPUT,
    "outputs": OUTPUT,
    "reference": REFERENCE,
    "reference_output": REFERENCE,
    "reference_outputs": REFERENCE,
    "referenceOutput": REFERENCE,
    "referenceOutputs": REFERENCE,
    "run": RUN,
}
"""The first parts of paths, with the spellings of the public clients."""
RUN_FIELDS = ("id", "name", "run_type", "error", "tags", "metadata", "latency", "total_tokens")
_FIELDS_WITH_PARTS = ("metadata", "tags")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a judge sees; `reference` is None without an example."""

    inputs: Any
    outputs: Any
    reference: Any
    run: Mapping[str, Any]
    """`RUN_FIELDS`."""


def complete_mapping(mapping: Mapping[str, str], variables: Collection[str]) -> dict[str, str]:
    """Return a path for each variable; one without a path is that of its own name.

    Raises `BadEvaluator` for a path that is not one, and for variables without any.
    """
    if len(mapping) > MAX_VARIABLES:
        raise BadEvaluator(f"`variable_mapping` has at most {MAX_VARIABLES} variables.")
    for name, path in mapping.items():
        check_path(name, path)
    if unknown := [name for name in mapping if name not in variables]:
        raise BadEvaluator(f"`variable_mapping`: the prompt has no variable `{unknown[0]:.100}`.")
    completed = {name: mapping.get(name, name) for name in variables}
    missing = [name for name in variables if name not in mapping and name not in ROOTS]
    missing += [name for name in variables if name not in mapping and ROOTS.get(name) == RUN]
    if missing:
        raise BadEvaluator(
            f"`variable_mapping` has no path for the variable `{missing[0]:.100}`.",
            [{"field": f"variable_mapping.{name}"} for name in missing],
        )
    return completed


def check_path(name: str, path: str) -> None:
    """Raises `BadEvaluator`."""
    first, *rest = path.split(".")
    problem = ""
    if len(path) > MAX_PATH_LENGTH or not all(rest):
        problem = f"must have at most {MAX_PATH_LENGTH} characters, and no empty part"
    elif first not in ROOTS:
        problem = "must begin with `input`, `output`, `reference` or `run`"
    elif ROOTS[first] == RUN and (not rest or rest[0] not in RUN_FIELDS):
        problem = f"`run` must be followed by one of {', '.join(RUN_FIELDS)}"
    elif ROOTS[first] == RUN and rest[1:] and rest[0] not in _FIELDS_WITH_PARTS:
        problem = f"`run.{rest[0]}` has no parts"
    if problem:
        raise BadEvaluator(f"`variable_mapping.{name:.100}`: the path {problem}.")


def needs_output(mapping: Mapping[str, str]) -> bool:
    return any(ROOTS[path.partition(".")[0]] == OUTPUT for path in mapping.values())


def read_values(mapping: Mapping[str, str], subject: Subject) -> dict[str, Any]:
    """Return the value of each variable. Raises `ValueMissing`."""
    return {name: _read(path, subject) for name, path in mapping.items()}


def _read(path: str, subject: Subject) -> Any:
    first, *rest = path.split(".")
    root = ROOTS[first]
    if root == RUN:
        value: Any = subject.run
    elif root == REFERENCE:
        if subject.reference is None:
            raise ValueMissing(f"The run has no example with a reference output, for `{path}`.")
        value = subject.reference
    else:
        value = subject.inputs if root == INPUT else subject.outputs
    for part in rest:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise ValueMissing(f"The run has no `{path}`.")
    return value
