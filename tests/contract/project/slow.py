"""Steps that take their time; `effects` tells how often each really ran.

`steps` of `seconds` each; every execution of a step leaves a mark of its own, so a step that ran
twice has left two in the streams (`custom`), and one that counted twice has two in the state.
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


async def work(state: State) -> State:
    mark = f"{state.get('done', 0)}:{uuid4()}"
    get_stream_writer()({"began": mark})
    await asyncio.sleep(state.get("seconds", 0))
    get_stream_writer()({"ended": mark})
    return {"done": 1, "effects": [mark]}


def more(state: State) -> str:
    return "work" if state["done"] < state.get("steps", 1) else END


builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
builder.add_conditional_edges("work", more, ["work", END])
graph = builder.compile()
