"""Long-term memory: what one thread learns about a user, another one knows."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from parrot import Parrot

model = Parrot()


async def call_model(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict:
    namespace = ("facts", config["configurable"]["user_id"])
    said = str(state["messages"][-1].text)
    if said.startswith("remember: "):
        fact = said.removeprefix("remember: ")
        await store.aput(namespace, fact.replace(" ", "-"), {"fact": fact})
    known = sorted(item.value["fact"] for item in await store.asearch(namespace))
    answer = await model.ainvoke([("user", f"I know: {', '.join(known) or 'nothing'}")])
    return {"messages": [answer]}


builder = StateGraph(MessagesState).add_sequence([call_model])
builder.add_edge(START, "call_model")
graph = builder.compile()
