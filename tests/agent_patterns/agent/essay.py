"""Tasks: a finished task does not run again after an interrupt."""

from __future__ import annotations

from uuid import uuid4

from langgraph.func import entrypoint, task
from langgraph.types import interrupt


@task
async def write_essay(topic: str) -> str:
    return f"An essay about {topic} ({uuid4()})"


@entrypoint()
async def graph(topic: str) -> dict:
    essay = await write_essay(topic)
    approved = interrupt({"essay": essay, "action": "Please approve or reject the essay"})
    return {"essay": essay, "approved": approved}
