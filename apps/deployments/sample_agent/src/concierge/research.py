"""A subgraph that finds the notes for a question and combines them into an answer."""

from langchain_core.messages import ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph

NOTES = {
    "refunds": "Refunds are paid within five days, to the card that was used.",
    "opening hours": "The front desk is open from eight to eight, on Sundays from ten to four.",
    "invoices": "Invoices are sent on the first day of each month.",
}


class Research(MessagesState, total=False):
    topics: dict[str, list[str]]
    """The topics of the matching notes, by the id of the tool call."""


def search(state: Research) -> dict:
    """Find the topics that share a word with the question of each call."""
    result = {}
    for call in state["messages"][-1].tool_calls:
        words = {_stem(word) for word in call["args"]["question"].split()}
        result[call["id"]] = [topic for topic in NOTES if words & {_stem(word) for word in topic.split()}]
    get_stream_writer()({"searched": len(NOTES), "found": sum(result.values(), [])})
    return {"topics": result}


def summarize(state: Research) -> dict:
    return {
        "messages": [
            ToolMessage(
                " ".join(NOTES[topic] for topic in topics) or "Nothing about that.",
                name="look_up",
                tool_call_id=call_id,
            )
            for call_id, topics in state["topics"].items()
        ]
    }


def _stem(word: str) -> str:
    return word.strip("?!.,").lower().rstrip("s")


research = (
    StateGraph(Research)
    .add_node(search)
    .add_node(summarize)
    .add_edge(START, "search")
    .add_edge("search", "summarize")
    .add_edge("summarize", END)
    .compile(name="research")
)
