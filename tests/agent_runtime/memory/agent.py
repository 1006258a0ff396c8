"""Graphs that make the store calls that their input lists."""

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
    """Each call is `[method, args, options]`; they are made in this order."""
    results: list[Any]


OPS = {"get": GetOp, "put": PutOp, "search": SearchOp, "namespaces": ListNamespacesOp}


def to_json(value):
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if hasattr(value, "dict"):
        fields = value.dict()
        fields["namespace"] = list(fields["namespace"])
        del fields["created_at"], fields["updated_at"]
        return fields
    return list(value) if isinstance(value, tuple) else value


NUL = "(nul)"


def with_nul(value):
    """Replace the marker by U+0000, which the JSON of a run cannot contain."""
    return json.loads(json.dumps(value).replace(NUL, "\\u0000"))


def build_op(kind, *rest):
    first, *others = rest
    if kind == "namespaces":
        return OPS[kind](tuple(MatchCondition(t, tuple(p)) for t, p in first), *others)
    return OPS[kind](tuple(first), *others)


def parse_call(call):
    method, args, options = with_nul(call)
    if method.endswith("batch"):
        return method, [[build_op(*op) for op in args]], {}
    return method, [tuple(arg) if isinstance(arg, list) else arg for arg in args], options


def to_error(error):
    return {"error": type(error).__name__, "message": str(error)}


def sync_node(state: Script, runtime: Runtime) -> Script:
    results = []
    for method, args, options in map(parse_call, state["calls"]):
        try:
            results.append(to_json(getattr(get_store(), method)(*args, **options)))
        except Exception as error:  # noqa: BLE001
            results.append(to_error(error))
    return {"results": results}


async def put_many(store, count):
    await asyncio.gather(
        *[store.aput(("many", str(n % 5)), str(n), {"n": n}) for n in range(count)]
    )


async def get_in_thread(store):
    """Read an item from a thread that the agent starts, as libraries with own threads do."""
    results = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: results.append(context.run(store.get, ("n",), "k")))
    thread.start()
    await asyncio.to_thread(thread.join)
    return results[0]


async def async_node(state: Script, runtime: Runtime) -> Script:
    results = []
    store = runtime.store
    for method, args, options in map(parse_call, state["calls"]):
        try:
            # Async methods, and blocking ones on the event loop's own thread.
            if method == "parallel":
                value = put_many(store, *args)
            elif method == "thread":
                value = get_in_thread(store)
            else:
                value = getattr(store, method)(*args, **options)
            results.append(to_json(await value if asyncio.iscoroutine(value) else value))
        except Exception as error:  # noqa: BLE001
            results.append(to_error(error))
    return {"results": results}


def _graph(node):
    builder = StateGraph(Script).add_node("node", node)
    return builder.add_edge(START, "node").add_edge("node", END)


sync_graph = _graph(sync_node).compile()
async_graph = _graph(async_node).compile()


async def make(runtime):
    """A graph factory that reads the store and tries to write to it."""
    facts = await runtime.store.aget(("n",), "k")
    try:
        await runtime.store.aput(("made",), "k", {"by": "factory"})
        has_written = True
    except Exception:  # noqa: BLE001
        has_written = False

    async def node(state: Script) -> Script:
        return {"results": [to_json(facts), has_written]}

    return _graph(node)
