"""Graphs for the engine's tests. A node records its side effect as a line in a file."""

import asyncio
import operator
import os
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Items(TypedDict, total=False):
    items: Annotated[list[str], operator.add]
    seconds: float


async def take(state: Items) -> Items:
    await asyncio.sleep(state.get("seconds") or 0)
    return {}


collect = StateGraph(Items).add_node(take).add_edge(START, "take").add_edge("take", END).compile()


class Steps(TypedDict, total=False):
    file: str
    wait_at: str
    trail: Annotated[list[str], operator.add]


def append_line(state: Steps, line: str) -> None:
    with Path(state["file"]).open("a") as file:
        file.write(f"{line}\n")


def may_continue(file: str) -> bool:
    return Path(f"{file}.go").exists()


async def wait_until_continued(file: str) -> None:
    """Wait until the file `<file>.go` exists."""
    while not may_continue(file):
        await asyncio.sleep(0.01)


def step(name):
    async def node(state: Steps, config: RunnableConfig) -> Steps:
        """Append a line; at the step `wait_at`, wait until the file `<file>.go` exists."""
        append_line(state, f"{name} {config['metadata']['run_attempt']}")
        if state.get("wait_at") == name:
            await wait_until_continued(state["file"])
        return {"trail": [name]}

    return node


builder = StateGraph(Steps)
NAMES = ["one", "two", "three", "four", "five"]
for name, before in zip(NAMES, [START, *NAMES], strict=False):
    builder.add_node(name, step(name))
    builder.add_edge(before, name)
builder.add_edge("five", END)
steps = builder


class Answer(TypedDict, total=False):
    answer: Any
    question: Any
    file: str


def question(state: Answer) -> Answer:
    return {"answer": interrupt(state.get("question") or {"question": "sure?"})}


ask = StateGraph(Answer).add_node(question).add_edge(START, "question").add_edge("question", END)


async def two_questions(state: Answer) -> Answer:
    first = interrupt("sure?")
    await wait_until_continued(state["file"])
    return {"answer": interrupt(f"and {first}?")}


ask_twice = (
    StateGraph(Answer)
    .add_node(two_questions)
    .add_edge(START, "two_questions")
    .add_edge("two_questions", END)
)


def raise_lookup_error(state: Answer) -> Answer:
    raise LookupError("no such city")


fail = (
    StateGraph(Answer).add_node(raise_lookup_error).add_edge(START, "raise_lookup_error").compile()
)


def exit_process(state: Steps, config: RunnableConfig) -> Steps:
    append_line(state, f"last words {config['metadata']['run_attempt']}")
    os._exit(3)


die = StateGraph(Steps).add_node(exit_process).add_edge(START, "exit_process").compile()


async def ignore_cancellation(state: Items) -> Items:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


stubborn = (
    StateGraph(Items).add_node(ignore_cancellation).add_edge(START, "ignore_cancellation").compile()
)


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def talk(state: Chat) -> Chat:
    model = GenericFakeChatModel(messages=iter([AIMessage(content="to be or not", id="ai-1")]))
    return {"messages": [await model.ainvoke(state["messages"])]}


chat = StateGraph(Chat).add_node(talk).add_edge(START, "talk").compile()


class Tale(TypedDict, total=False):
    count: int
    pause: float


async def say(state: Tale) -> Tale:
    write = get_stream_writer()
    for number in range(state["count"]):
        write(number)
        await asyncio.sleep(state["pause"])
    return {}


tell = StateGraph(Tale).add_node(say).add_edge(START, "say").compile()
