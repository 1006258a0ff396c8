"""A graph that takes as long as it is told."""

from __future__ import annotations

import asyncio
import os

from langgraph.graph import START, StateGraph
from langgraph_sdk import get_client
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    sleep: float
    call: bool
    said: str
    found: list


async def say(state: State) -> State:
    await asyncio.sleep(state.get("sleep", 0))
    if state.get("call"):
        client = get_client()
        thread = await client.threads.create(metadata={"made": "inside"})
        found = await client.threads.search(metadata={"made": "inside"}, ids=[thread["thread_id"]])
        return {"said": "called", "found": [row["metadata"] for row in found]}
    return {"said": os.environ["GREETING"]}


graph = StateGraph(State).add_node("say", say).add_edge(START, "say").compile()
