"""Doubles the question after a short sleep.

The tests deploy this folder as a repository, so it imports nothing of Slipway.
"""

from __future__ import annotations

import asyncio

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    question: int
    answer: int


async def double(state: State) -> State:
    await asyncio.sleep(0.3)
    return {"answer": 2 * state["question"]}


graph = StateGraph(State).add_node("double", double).add_edge(START, "double").compile()
