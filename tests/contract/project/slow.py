"""Slow steps, with a record in `effects` of how often each one ran.

There are `steps` of `seconds` each. Every execution of a step writes a unique mark: a step that ran
twice has two marks in the `custom` stream, and a step that was stored twice has two in the state.
"""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated
from uuid import uuid4

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    seconds: float
    steps: int
    done: Annotated[int, operator.add]
    effects: Annotated[list[str], operator.add]


async def run_step(state: State) -> State:
    mark = f"{state.get('done', 0)}:{uuid4()}"
    get_stream_writer()({"began": mark})
    await asyncio.sleep(state.get("seconds", 0))
    get_stream_writer()({"ended": mark})
    return {"done": 1, "effects": [mark]}


def choose_next(state: State) -> str:
    return "work" if state["done"] < state.get("steps", 1) else END


builder = StateGraph(State)
builder.add_node("work", run_step)
builder.add_edge(START, "work")
builder.add_conditional_edges("work", choose_next, ["work", END])
graph = builder.compile()
