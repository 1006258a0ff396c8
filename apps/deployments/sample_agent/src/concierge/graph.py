"""The agent: a model that calls tools, a subgraph for research, and mail that a user approves."""

from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from concierge.model import choose_model
from concierge.research import research
from concierge.tools import calculate, look_up, send_mail

INSTRUCTIONS = SystemMessage(
    "You are the concierge of a small hotel. Answer in a friendly, brief and exact way. Use your tools."
)


class State(MessagesState):
    """The conversation, and the number of mails sent in this thread."""

    mails_sent: int


model = choose_model().bind_tools([calculate, look_up, send_mail])


async def answer(state: State) -> dict:
    """Ask the model for the next message."""
    return {"messages": [await model.ainvoke([INSTRUCTIONS, *state["messages"]])]}


def route_tool_calls(state: State) -> list[Send] | str:
    """Send each tool call of the last message to the node that executes it."""
    last = state["messages"][-1]
    if not isinstance(last, AIMessage) or not last.tool_calls:
        return END
    sends = []
    for node, is_research in (("research", True), ("tools", False)):
        calls = [call for call in last.tool_calls if (call["name"] == "look_up") is is_research]
        if calls:
            part = last.model_copy(update={"tool_calls": calls})
            sends.append(Send(node, {"messages": [part]}))
    return sends


def count(state: State) -> dict:
    """Add the number of mails sent by the last tool calls."""
    sent = 0
    for message in reversed(state["messages"]):
        if not isinstance(message, ToolMessage):
            break
        sent += message.name == "send_mail" and message.text.startswith("Sent")
    return {"mails_sent": state.get("mails_sent", 0) + sent}


graph = (
    StateGraph(State)
    .add_node(answer)
    .add_node("research", research)
    .add_node("tools", ToolNode([calculate, send_mail]))
    .add_node(count)
    .add_edge(START, "answer")
    .add_conditional_edges("answer", route_tool_calls, ["research", "tools", END])
    .add_edge("research", "count")
    .add_edge("tools", "count")
    .add_edge("count", "answer")
    .compile(name="concierge")
)
