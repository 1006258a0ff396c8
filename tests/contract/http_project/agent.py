"""A graph that sleeps for the given time and can call its own server."""

from __future__ import annotations

import asyncio
import os

from langgraph.graph import START, StateGraph
from langgraph_sdk import get_client
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    sleep: float
    call: bool
    message: str
    threads: list


async def send_greeting(state: State) -> State:
    await asyncio.sleep(state.get("sleep", 0))
    if state.get("call"):
        client = get_client()
        thread = await client.threads.create(metadata={"made": "inside"})
        threads = await client.threads.search(
            metadata={"made": "inside"}, ids=[thread["thread_id"]]
        )
        return {"message": "called", "threads": [row["metadata"] for row in threads]}
    return {"message": os.environ["GREETING"]}


graph = StateGraph(State).add_node("greet", send_greeting).add_edge(START, "greet").compile()
