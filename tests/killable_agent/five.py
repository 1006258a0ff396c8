"""Five slow nodes in sequence; each reports each execution to a recorder.

The tests deploy this folder as a repository, so it imports nothing of Slipway.
"""

from __future__ import annotations

import asyncio
import operator
import os
import urllib.request
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

NODES = 5
SECONDS = float(os.environ.get("NODE_SECONDS", "0.5"))


class State(TypedDict, total=False):
    trail: Annotated[list[str], operator.add]


def _report(line: str) -> None:
    urllib.request.urlopen(os.environ["RECORDER"], line.encode(), timeout=5).close()


def _node(name: str) -> Any:
    async def execute(state: State, config: RunnableConfig) -> State:
        metadata = config["metadata"]
        line = f"{metadata['run_id']} {metadata['run_attempt']} {name}"
        await asyncio.to_thread(_report, line)
        await asyncio.sleep(SECONDS)
        return {"trail": [name]}

    return execute


_builder = StateGraph(State)
_names = [f"step{number}" for number in range(1, NODES + 1)]
for _before, _name in zip([START, *_names], _names, strict=False):
    _builder.add_node(_name, _node(_name))
    _builder.add_edge(_before, _name)
_builder.add_edge(_names[-1], END)
graph = _builder.compile()
