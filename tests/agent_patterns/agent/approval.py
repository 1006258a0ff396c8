"""Approve or reject: the answer selects the next node."""

from __future__ import annotations

from typing import Literal

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    amount: int
    decision: str
    result: str


def approval(state: State) -> Command[Literal["pay", "decline"]]:
    approved = interrupt({"question": "Pay this?", "amount": state["amount"]})
    if approved:
        return Command(goto="pay", update={"decision": "approved"})
    return Command(goto="decline", update={"decision": "rejected"})


def pay(state: State) -> State:
    return {"result": f"paid {state['amount']}"}


def decline(_: State) -> State:
    return {"result": "nothing paid"}


builder = StateGraph(State)
builder.add_node(approval)
builder.add_node(pay)
builder.add_node(decline)
builder.add_edge(START, "approval")
builder.add_edge("pay", END)
builder.add_edge("decline", END)
graph = builder.compile()
