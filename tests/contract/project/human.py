"""Asks for approval before it sends; `ask` is the number of simultaneous questions."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    ask: int


def draft(state: State) -> State:
    return {"notes": ["draft"]}


def questions(state: State) -> list[Send]:
    return [Send("approve", {"number": number}) for number in range(state.get("ask", 1))]


def approve(state: dict) -> State:
    answer = interrupt({"approve": f"send it? ({state['number']})"})
    return {"notes": [f"answer {state['number']}: {answer}"]}


def send(state: State) -> State:
    return {"notes": ["sent"]}


builder = StateGraph(State)
builder.add_node("draft", draft)
builder.add_node("approve", approve)
builder.add_node("send", send)
builder.add_edge(START, "draft")
builder.add_conditional_edges("draft", questions, ["approve"])
builder.add_edge("approve", "send")
builder.add_edge("send", END)
graph = builder.compile()
