"""Map and reduce: a joke for each subject, all at once, and the longest wins."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


class Joke(TypedDict):
    subject: str


def send_subjects(state: State) -> list[Send]:
    return [Send("write_joke", {"subject": subject}) for subject in state["subjects"]]


async def write_joke(state: Joke) -> State:
    # The first subject is the slowest: results are merged by order of sending, not of ending.
    await asyncio.sleep(0.1 / len(state["subject"]))
    return {"jokes": [f"a {state['subject']} walks into a bar"]}


def judge(state: State) -> State:
    return {"best": max(state["jokes"], key=len)}


builder = StateGraph(State)
builder.add_node("write_joke", write_joke)
builder.add_node("judge", judge)
builder.add_conditional_edges(START, send_subjects, ["write_joke"])
builder.add_edge("write_joke", "judge")
builder.add_edge("judge", END)
graph = builder.compile()
