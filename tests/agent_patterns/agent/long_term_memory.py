"""Long-term memory: facts about a user are shared by all threads."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from parrot import Parrot

model = Parrot()


async def call_model(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict:
    namespace = ("facts", config["configurable"]["user_id"])
    text = str(state["messages"][-1].text)
    if text.startswith("remember: "):
        fact = text.removeprefix("remember: ")
        await store.aput(namespace, fact.replace(" ", "-"), {"fact": fact})
    facts = sorted(item.value["fact"] for item in await store.asearch(namespace))
    answer = await model.ainvoke([("user", f"I know: {', '.join(facts) or 'nothing'}")])
    return {"messages": [answer]}


builder = StateGraph(MessagesState).add_sequence([call_model])
builder.add_edge(START, "call_model")
graph = builder.compile()
