"""A graph inside the graph: finds the notes that fit a question, then puts them into a sentence."""

from langchain_core.messages import ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph

NOTES = {
    "refunds": "Refunds are paid within five days, to the card that was used.",
    "opening hours": "The desk is open from eight to eight, on Sundays from ten to four.",
    "invoices": "Invoices are sent on the first day of each month.",
}


class Research(MessagesState, total=False):
    topics: dict[str, list[str]]
    """For each call that asks, the topics that may answer it."""


def search(state: Research) -> dict:
    """Topics that share a word with each question."""
    result = {}
    for call in state["messages"][-1].tool_calls:
        words = {_stem(word) for word in call["args"]["question"].split()}
        result[call["id"]] = [t for t in NOTES if words & {_stem(word) for word in t.split()}]
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
