"""Loading of a repository by a graph host: graphs, imports, variables and problems."""

from __future__ import annotations

import pytest

from tests.child_output import read_line

STATE = """
import contextlib
from typing import Annotated
from dataclasses import dataclass
import operator
from typing_extensions import TypedDict
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph_sdk.runtime import ServerRuntime

class State(TypedDict, total=False):
    words: Annotated[list[str], operator.add]

def build_graph(*words):
    graph = StateGraph(State).add_node("say", lambda state: {"words": list(words)})
    return graph.add_edge(START, "say")
"""

KINDS = (
    STATE
    + """
builder = build_graph("builder")
compiled = build_graph("compiled").compile()

@entrypoint()
async def function(state: dict) -> dict:
    return {"words": ["function"]}

def plain():
    return build_graph("plain")

def configured(config: RunnableConfig):
    return build_graph(config["configurable"]["voice"]).compile()

async def awaited(config):
    return build_graph("awaited").compile()

def by_runtime(runtime: ServerRuntime):
    return build_graph(runtime.access_context, str(runtime.execution_runtime is not None))

def by_both(config: RunnableConfig, runtime: "ServerRuntime[dict]"):
    return build_graph(runtime.access_context, config["configurable"]["voice"])

@contextlib.asynccontextmanager
async def opened(config: RunnableConfig):
    print("opened", flush=True)
    yield build_graph("opened").compile()
    print("closed", flush=True)
"""
)


def test_every_kind_of_graph_definition_is_loaded(host):
    expected = {
        "builder": ["builder"],
        "compiled": ["compiled"],
        "function": ["function"],
        "plain": ["plain"],
        "configured": ["soft"],
        "awaited": ["awaited"],
        "by_runtime": ["threads.create_run", "True"],
        "by_both": ["threads.create_run", "soft"],
        "opened": ["opened"],
    }
    agent_host = host({"agent.py": KINDS}, graphs={name: f"./agent.py:{name}" for name in expected})
    kwargs = {"input": {"words": []}, "config": {"configurable": {"voice": "soft"}}}

    results = {name: agent_host.run(name, kwargs)[0][-1][1]["words"] for name in expected}

    assert agent_host.hello["problems"] == {}
    assert results == expected


def test_graph_files_import_relatively_and_by_module_name(host):
    agent_host = host(
        {
            "src/pack/__init__.py": "",
            "src/pack/words.py": "WORD = 'relative'",
            "src/pack/agent.py": STATE + "from .words import WORD\ngraph = build_graph(WORD)",
            "other.py": STATE
            + "from pack.words import WORD\ngraph = build_graph(WORD, 'absolute')",
        },
        dependencies=["./src", "."],
        graphs={
            "a": {"path": "./src/pack/agent.py:graph", "description": "A."},
            "b": "other:graph",
        },
    )

    results = [
        agent_host.run(name, {"input": {"words": []}})[0][-1][1]["words"] for name in ("a", "b")
    ]

    assert results == [["relative"], ["relative", "absolute"]]
    assert agent_host.hello["graphs"] == {"a": "A.", "b": None}


def test_a_flat_local_dependency_is_a_package_of_its_folder_name(host):
    agent = STATE + (
        "from common import GREETING\n"
        "from common.helpers import NAME\n"
        "import json, importlib.util\n"
        "hidden = importlib.util.find_spec('sibling') is None\n"
        "graph = build_graph(GREETING, NAME, str(hidden), json.dumps({}))\n"
    )
    files = {
        "agent.py": agent,
        "libs/common/__init__.py": "GREETING = 'hello'",
        "libs/common/helpers.py": "from . import GREETING\nNAME = GREETING.title()",
        "libs/sibling/__init__.py": "",
        "libs/json/__init__.py": "raise ImportError('shadows the standard library')",
    }

    agent_host = host(
        files,
        dependencies=[".", "./libs/common", "./libs/json"],
        graphs={"agent": "./agent.py:graph"},
    )

    assert agent_host.hello["problems"] == {}
    events, _ = agent_host.run("agent", {"input": {"words": []}})
    assert events[-1][1]["words"] == ["hello", "Hello", "True", "{}"]


def test_each_broken_graph_has_a_problem_in_terms_of_its_repository(host):
    agent_host = host(
        {
            "broken.py": "import json\n\ndef make():\n    return missing_name\n\ngraph = make()",
            "clash.py": "from fine import missing",
            "fine.py": STATE + "graph = build_graph('x')\nnumber = 3",
            "needs.py": "import a_package_that_is_not_there",
            "odd.py": STATE + "def graph(one, two): ...",
            "syntax.py": "graph = (",
        },
        graphs={
            "broken": "./broken.py:graph",
            "absent": "./absent.py:graph",
            "clash": "./clash.py:graph",
            "nameless": "./fine.py:other",
            "number": "./fine.py:number",
            "outside": "../../etc/hosts.py:x",
            "needs": "./needs.py:graph",
            "odd": "./odd.py:graph",
            "script": "./agent.ts:graph",
            "shapeless": "fine.py",
            "syntax": "./syntax.py:graph",
            "fine": "./fine.py:graph",
        },
    )

    problems = agent_host.hello["problems"]

    assert set(agent_host.hello["graphs"]) == {"fine"}
    assert problems["broken"].splitlines()[0] == (
        "Graph `broken` (`./broken.py:graph`) could not be imported: "
        "NameError: name 'missing_name' is not defined"
    )
    assert "line 4, in make" in problems["broken"]
    assert "graph_host" not in problems["broken"]
    assert problems["absent"] == "Graph `absent`: there is no file `./absent.py` in the repository."
    assert problems["clash"].splitlines()[0] == (
        "Graph `clash` (`./clash.py:graph`) could not be imported: "
        "ImportError: cannot import name 'missing' from 'fine' (fine.py)"
    )
    assert problems["nameless"].startswith("Graph `nameless`: `./fine.py` has no `other`.")
    assert problems["number"] == (
        "Graph `number` is a int; it must be a compiled graph, a graph builder, "
        "or a function that returns one."
    )
    assert problems["outside"].endswith("is outside the repository.")
    assert "ModuleNotFoundError: No module named 'a_package_that_is_not_there'" in problems["needs"]
    assert "takes `two`" in problems["odd"]
    assert problems["script"].startswith("Graph `script`: there is no file")
    assert "must be `./file.py:name`" in problems["shapeless"]
    assert "SyntaxError" in problems["syntax"]


def test_an_invalid_langgraph_json_is_reported_as_a_problem(host):
    agent_host = host({"langgraph.json": "[]"})

    assert (
        agent_host.hello["problem"] == "`langgraph.json` must be an object with an object `graphs`."
    )


def test_variables_of_langgraph_json_do_not_override_the_deployment(host):
    agent_host = host(
        {
            "agent.py": STATE
            + "import os\ngraph = build_graph(os.environ['WORD'], os.environ['PATH'])",
        },
        graphs={"a": "./agent.py:graph"},
        env={"WORD": "from file", "PATH": "/never"},
    )

    word, path = agent_host.run("a", {"input": {"words": []}})[0][-1][1]["words"]

    assert word == "from file"
    assert path != "/never"


def test_describe_returns_schemas_and_drawing(host):
    code = (
        STATE
        + """
@dataclass
class Context:
    tone: str = "calm"

def pick(state): return "b"

builder = StateGraph(State, context_schema=Context)
builder.add_node("a", lambda s: s)
builder.add_node("b", lambda s: s)
builder.add_edge(START, "a")
builder.add_conditional_edges("a", pick, ["b", END])
graph = builder.compile()
"""
    )
    agent_host = host({"agent.py": code}, graphs={"a": "./agent.py:graph"})

    description = agent_host.call_graph("a", "describe")

    assert description["schemas"]["context_schema"]["properties"]["tone"]["default"] == "calm"
    assert description["schemas"]["config_schema"] == description["schemas"]["context_schema"]
    assert list(description["schemas"]["state_schema"]["properties"]) == ["words"]
    assert [node["id"] for node in description["drawing"]["nodes"]] == [
        "__start__",
        "a",
        "b",
        "__end__",
    ]
    assert {"source": "a", "target": "b", "conditional": True} in description["drawing"]["edges"]


@pytest.mark.parametrize(
    ("configurable", "user_id"),
    [
        ({}, "default"),
        ({"user_id": "ann"}, "ann"),
        ({"user_id": "bob", "langgraph_auth_user_id": "bob"}, "default"),
    ],
)
def test_fields_of_the_platform_do_not_reach_the_context(host, configurable, user_id):
    code = (
        STATE
        + """
@dataclass
class Context:
    user_id: str = "default"
    thread_id: str = "none"
    langgraph_request_id: str = "none"

def show(state, runtime):
    context = runtime.context
    return {"words": [context.user_id, context.thread_id, context.langgraph_request_id]}

graph = StateGraph(State, context_schema=Context).add_node("a", show).add_edge(START, "a")
"""
    )
    agent_host = host({"agent.py": code}, graphs={"a": "./agent.py:graph"})
    configurable = {"langgraph_request_id": "r", **configurable}

    kwargs = {"input": {"words": []}, "config": {"configurable": configurable}}
    state = agent_host.run("a", kwargs)[0][-1][1]

    assert state["words"] == [user_id, "none", "none"]


def test_a_host_with_a_blocked_loop_exits_with_its_worker(host):
    code = (
        STATE
        + """
import time
async def sleep(state):
    print("sleeping", flush=True)
    time.sleep(600)
graph = StateGraph(State).add_node("sleep", sleep).add_edge(START, "sleep")
"""
    )
    agent_host = host({"agent.py": code}, graphs={"a": "./agent.py:graph"})
    agent_host.send(
        "start", 1, {
            "run_id": "01a20015-3670-72a7-a4f2-e23a7bdb5298", "thread_id": "t", "graph_id": "a",
            "trace_id": "01a20015-3670-72a7-a4f2-e23a7bdb5298",
            "assistant_id": "x", "attempt": 1, "metadata": {}, "head": None,
            "kwargs": b'{"input": {"words": []}}',
        },
    )  # fmt: skip
    assert read_line(agent_host.process.stdout) == b"sleeping\n"

    agent_host.socket.close()

    assert agent_host.process.wait(120) == 0
