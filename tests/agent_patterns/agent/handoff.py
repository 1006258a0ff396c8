"""Handoff: a tool of one agent passes the conversation to another agent."""

from __future__ import annotations

import warnings
from typing import Annotated

from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, create_react_agent
from langgraph.types import Command
from parrot import Parrot
from toolbox import multiply


class State(MessagesState):
    active: str


@tool
def transfer_to_accountant(
    state: Annotated[dict, InjectedState],
    tool_call_id: Annotated[str, InjectedToolCallId],
) -> Command:
    """Pass the conversation to the accountant."""
    tool_message = ToolMessage("over to the accountant", tool_call_id=tool_call_id)
    return Command(
        graph=Command.PARENT,
        goto="accountant",
        update={"messages": [*state["messages"], tool_message], "active": "accountant"},
    )


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    receptionist = create_react_agent(Parrot(), [transfer_to_accountant], name="receptionist")
    accountant = create_react_agent(Parrot(), [multiply], name="accountant")


def choose_active_agent(state: State) -> str:
    return state.get("active") or "receptionist"


builder = StateGraph(State)
builder.add_node("receptionist", receptionist, destinations=("accountant",))
builder.add_node("accountant", accountant)
builder.add_conditional_edges(START, choose_active_agent, ["receptionist", "accountant"])
graph = builder.compile()
