"""Graphs that do with the store what their input says."""

import asyncio
import contextvars
import json
import threading
from typing import Any

from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from typing_extensions import TypedDict


class Script(TypedDict, total=False):
    calls: list[Any]
    """`[method, args, options]`, in turn; `parallel` has a list of such."""
    results: list[Any]


OPS = {"get": GetOp, "put": PutOp, "search": SearchOp, "namespaces": ListNamespacesOp}


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "dict"):
        kept = value.dict()
        kept["namespace"] = list(kept["namespace"])
        del kept["created_at"], kept["updated_at"]
        return kept
    return list(value) if isinstance(value, tuple) else value


NUL = "(nul)"


def with_nul(value):
    """JSON of a run cannot say it."""
    return json.loads(json.dumps(value).replace(NUL, "\\u0000"))


def op(kind, *rest):
    first, *others = rest
    if kind == "namespaces":
        return OPS[kind](tuple(MatchCondition(t, tuple(p)) for t, p in first), *others)
    return OPS[kind](tuple(first), *others)


def arranged(call):
    method, args, options = with_nul(call)
    if method.endswith("batch"):
        return method, [[op(*one) for one in args]], {}
    return method, [tuple(arg) if isinstance(arg, list) else arg for arg in args], options


def told(error):
    return {"error": type(error).__name__, "message": str(error)}


def sync_node(state: Script, runtime: Runtime) -> Script:
    results = []
    for method, args, options in map(arranged, state["calls"]):
        try:
            results.append(plain(getattr(get_store(), method)(*args, **options)))
        except Exception as error:  # noqa: BLE001
            results.append(told(error))
    return {"results": results}


async def put_many(store, count):
    await asyncio.gather(
        *[store.aput(("many", str(n % 5)), str(n), {"n": n}) for n in range(count)]
    )


async def get_in_thread(store):
    """As code of a library does that brings its own threads."""
    found = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: found.append(context.run(store.get, ("n",), "k")))
    thread.start()
    await asyncio.to_thread(thread.join)
    return found[0]


async def async_node(state: Script, runtime: Runtime) -> Script:
    results = []
    store = runtime.store
    for method, args, options in map(arranged, state["calls"]):
        try:
            # Both kinds of methods, also the blocking ones on the loop's own thread.
            if method == "parallel":
                value = put_many(store, *args)
            elif method == "thread":
                value = get_in_thread(store)
            else:
                value = getattr(store, method)(*args, **options)
            results.append(plain(await value if asyncio.iscoroutine(value) else value))
        except Exception as error:  # noqa: BLE001
            results.append(told(error))
    return {"results": results}


def _graph(node):
    builder = StateGraph(Script).add_node("node", node)
    return builder.add_edge(START, "node").add_edge("node", END)


sync_graph = _graph(sync_node).compile()
async_graph = _graph(async_node).compile()


async def make(runtime):
    """A factory that looks into the store, and may try to write there."""
    facts = await runtime.store.aget(("n",), "k")
    try:
        await runtime.store.aput(("made",), "k", {"by": "factory"})
        wrote = True
    except Exception:  # noqa: BLE001
        wrote = False

    async def node(state: Script) -> Script:
        return {"results": [plain(facts), wrote]}

    return _graph(node)
