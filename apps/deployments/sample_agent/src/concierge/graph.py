"""The agent: a model that may call tools, a graph that searches, and a person who approves."""

from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from concierge.model import choose_model
from concierge.research import research
from concierge.state import State
from concierge.tools import calculate, look_up, send_mail

INSTRUCTIONS = SystemMessage(
    "You are the concierge of a small house: friendly, brief, and exact. Use your tools."
)
model = choose_model().bind_tools([calculate, look_up, send_mail])


async def answer(state: State) -> dict:
    """The model's turn."""
    return {"messages": [await model.ainvoke([INSTRUCTIONS, *state["messages"]])]}


def hand_out(state: State) -> list[Send] | str:
    """Give each call of the model's message to who does it."""
    last = state["messages"][-1]
    if not isinstance(last, AIMessage) or not last.tool_calls:
        return END
    sends = []
    for node, is_mine in (("research", True), ("tools", False)):
        calls = [call for call in last.tool_calls if (call["name"] == "look_up") is is_mine]
        if calls:
            part = last.model_copy(update={"tool_calls": calls})
            sends.append(Send(node, {"messages": [part]}))
    return sends


def count(state: State) -> dict:
    """Keep the number of letters that were really sent."""
    sent = 0
    for message in reversed(state["messages"]):
        if not isinstance(message, ToolMessage):
            break
        sent += message.name == "send_mail" and message.text.startswith("Sent")
    return {"letters_sent": state.get("letters_sent", 0) + sent}


graph = (
    StateGraph(State)
    .add_node(answer)
    .add_node("research", research)
    .add_node("tools", ToolNode([calculate, send_mail]))
    .add_node(count)
    .add_edge(START, "answer")
    .add_conditional_edges("answer", hand_out, ["research", "tools", END])
    .add_edge("research", "count")
    .add_edge("tools", "count")
    .add_edge("count", "answer")
    .compile(name="concierge")
)
