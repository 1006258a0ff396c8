"""A project with three traces on the running platform, which the public clients read."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from langsmith import Client, traceable
from langsmith.run_helpers import get_current_run_tree, tracing_context

from tests.live_client import client

__all__ = ["client"]


@dataclass(frozen=True)
class Population:
    """Two turns of one thread, and one turn of another."""

    project: str
    project_id: uuid.UUID
    first: uuid.UUID
    """Has a tool run that fails and a model run of 11 tokens; feedback `helpful` 0.25."""
    second: uuid.UUID
    """Has no child runs; feedback `helpful` 0.75."""
    other: uuid.UUID
    """In the other thread, with a rare word."""


@traceable(run_type="tool", name="look up")
def look_up(question: str) -> str:
    raise ValueError(f"cannot look up {question}")


@traceable(run_type="llm", name="model", metadata={"ls_provider": "test", "ls_model_name": "m-1"})
def model(question: str) -> dict[str, object]:
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11, "total_cost": 0.5}
    return {"answer": f"to {question}", "usage_metadata": usage}


@traceable(name="agent")
def agent(question: str, *, has_children: bool) -> uuid.UUID:
    run = get_current_run_tree()
    assert run is not None
    if has_children:
        try:
            look_up(question)
        except ValueError:
            model(question)
    return run.id


@pytest.fixture(scope="module")
def population(client: Client) -> Population:
    project = f"sdk reading {uuid.uuid4()}"
    client.create_project(project, metadata={"purpose": "reading"})
    turns = [("why?", "t-1", True), ("and then?", "t-1", False), ("xylograph?", "t-2", False)]
    ids = []
    with tracing_context(enabled=True, client=client, project_name=project):
        for question, thread, has_children in turns:
            extra = {"metadata": {"thread_id": thread, "n": len(ids)}, "tags": [f"turn-{len(ids)}"]}
            ids.append(agent(question, has_children=has_children, langsmith_extra=extra))
    client.flush()
    for run_id, score in zip(ids, (0.25, 0.75), strict=False):
        client.create_feedback(run_id, "helpful", score=score, comment="a comment")
    project_row = client.read_project(project_name=project)
    return Population(project, project_row.id, *ids)
