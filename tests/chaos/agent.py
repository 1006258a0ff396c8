"""Steps that report each execution to a recorder and append it to the state.

The tests deploy this file as its own repository, so it imports nothing of Slipway.
"""

from __future__ import annotations

import asyncio
import operator
import os
import urllib.request
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

STEPS = 4


class State(TypedDict, total=False):
    mark: str
    """The run's prefix of the entries in the trail."""
    seconds: float
    asks: bool
    trail: Annotated[list[str], operator.add]


def _report(line: str) -> None:
    urllib.request.urlopen(os.environ["RECORDER"], line.encode(), timeout=30).close()


def _node(number: int) -> Any:
    async def execute(state: State, config: RunnableConfig) -> State:
        metadata = config["metadata"]
        line = f"{metadata['run_id']} {metadata['run_attempt']} {number}"
        await asyncio.to_thread(_report, line)
        await asyncio.sleep(state.get("seconds") or 0)
        return {"trail": [f"{state['mark']}/{number}"]}

    return execute


def _ask(state: State) -> State:
    if not state.get("asks"):
        return {}
    return {"trail": [f"{state['mark']}/answer {interrupt('continue?')}"]}


_builder = StateGraph(State)
_builder.add_node("ask", _ask)
_builder.add_edge(START, "ask")
for _number in range(1, STEPS + 1):
    _builder.add_node(f"step{_number}", _node(_number))
    _builder.add_edge("ask" if _number == 1 else f"step{_number - 1}", f"step{_number}")
_builder.add_edge(f"step{STEPS}", END)
graph = _builder.compile()
