"""Traces a run below an existing tracing run, in the project of that run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def trace_below(parent: Mapping[str, str] | None) -> Iterator[None]:
    """Make runs of the block children of `parent`: its `dotted_order` and `project_name`.

    The tracing SDK sends the children only; the parent belongs to the platform. No effect without
    a parent, or if tracing is off.
    """
    if parent is None:
        yield
        return
    # Deferred: the import costs a start of a host 130 ms, and few runs need it.
    from langsmith.run_helpers import tracing_context  # noqa: PLC0415
    from langsmith.run_trees import RunTree  # noqa: PLC0415
    from langsmith.utils import tracing_is_enabled  # noqa: PLC0415

    if not tracing_is_enabled():
        yield
        return
    project = parent["project_name"]
    run = RunTree.from_dotted_order(parent["dotted_order"], project_name=project)
    with tracing_context(parent=run, project_name=project):
        yield
